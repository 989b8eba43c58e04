package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// The report on the terminal.

func printResult(w io.Writer, r *result) {
	fmt.Fprintf(w, "\n%s: %s\n", r.family, r.name)
	if r.skip != "" {
		fmt.Fprintf(w, "  skipped: %s\n", r.skip)
		return
	}
	fmt.Fprintf(w, "  %s (%.1f s)\n", r.what, r.took.Seconds())
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, s := range r.subjects {
		fmt.Fprintf(t, "  %s\t%s\n", s.name, strings.Join(r.row(s.name), "\t"))
	}
	t.Flush()
}

// row is what is told of one subject: its time, its ratio to the baseline, and
// its tail and errors where there are any.
func (r *result) row(name string) []string {
	if r.measures != times {
		return []string{r.measures.format(r.over(func(one round) float64 { return one[name].mean() }).median) + " per " + r.unit}
	}
	perOp := r.over(func(one round) float64 { return one[name].perOp() })
	row := []string{seconds(perOp.median) + " per " + r.unit, ""}
	if name != r.baseline {
		row[1] = times.spread(r.over(func(one round) float64 { return one[r.baseline].perOp() / one[name].perOp() }))
	}
	var latencies, busy, failed int
	for _, one := range r.rounds {
		latencies += len(one[name].latencies)
		busy += one[name].busy
		failed += one[name].failed
	}
	if allocs := r.over(func(one round) float64 { return one[name].allocs() }).median; allocs >= 0.5 {
		row = append(row, fmt.Sprintf("%.0f allocs", allocs))
	}
	if latencies > 0 {
		p999 := r.over(func(one round) float64 { return one[name].percentile(0.999) })
		row = append(row, "p99.9 "+seconds(p999.median))
	}
	if busy > 0 {
		row = append(row, fmt.Sprintf("%d BUSY", busy))
	}
	if failed > 0 {
		row = append(row, fmt.Sprintf("%d failed", failed))
	}
	return row
}

// A verdict is one line of the budget table.
type verdict struct {
	work, value, budget, result string
}

func (r *result) verdicts() []verdict {
	var all []verdict
	for _, b := range r.budgets {
		work := r.name
		if b.what != "" {
			work += ": " + b.what
		}
		sign := "≥ "
		if b.most {
			sign = "≤ "
		}
		v := verdict{work: work, budget: sign + b.unit.format(b.limit), result: "skipped", value: r.skip}
		if r.skip == "" {
			s := r.over(b.value)
			v.value, v.result = b.unit.spread(s), "met"
			if !b.met(s) {
				v.result = "MISSED"
				if b.unit == times && b.unit.format(s.median) == b.unit.format(b.limit) {
					v.value = fmt.Sprintf("%.5g× (%.3g×–%.3g×)", s.median, s.low, s.high) // three digits would not show it
				}
			}
		}
		all = append(all, v)
	}
	return all
}

// printBudgets prints the table of budgets and returns how many were missed.
func printBudgets(w io.Writer, results []*result) (missed int) {
	fmt.Fprint(w, "\nBudgets: median over the rounds (lowest–highest)\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range results {
		for _, v := range r.verdicts() {
			fmt.Fprintf(t, "  %s\t%s\t%s\t%s\n", v.result, v.work, v.budget, v.value)
			if v.result == "MISSED" {
				missed++
			}
		}
	}
	t.Flush()
	return missed
}

// format writes one value.
func (u unit) format(v float64) string {
	switch u {
	case duration:
		return seconds(v)
	case count:
		return fmt.Sprintf("%.0f", v)
	case bytes:
		return fmt.Sprintf("%.0f KB", v/1000)
	default:
		if v > 0 && v < smallRatio {
			return fmt.Sprintf("1/%.3g", 1/v)
		}
		return fmt.Sprintf("%.3g×", v)
	}
}

// smallRatio is below what ratios are written as fractions.
const smallRatio = 0.12

// spread writes a value with its range.
func (u unit) spread(s spread) string {
	if u == times && s.median > 0 && s.median < smallRatio {
		return fmt.Sprintf("1/%.3g (1/%.3g–1/%.3g)", 1/s.median, 1/s.low, 1/s.high)
	}
	if u == times {
		return fmt.Sprintf("%.3g× (%.3g×–%.3g×)", s.median, s.low, s.high)
	}
	return fmt.Sprintf("%s (%s–%s)", u.format(s.median), u.format(s.low), u.format(s.high))
}

// seconds writes a time with three digits.
func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= unit {
			return fmt.Sprintf("%.3g %s", float64(d)/float64(unit), map[time.Duration]string{time.Second: "s", time.Millisecond: "ms", time.Microsecond: "µs"}[unit])
		}
	}
	return fmt.Sprintf("%.3g ns", s*1e9)
}

// thousands writes a number as people do: 1,000,000.
func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

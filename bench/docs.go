package main

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"
	"time"
)

// The report as a page with charts.

//go:embed performance.md.tmpl
var templates embed.FS

// A page is what the template is given.
type page struct {
	Machine  *machine
	Date     string
	Rounds   int
	Full     bool
	CPU      bool
	Command  string
	Pragmas  string
	Budgets  string
	sections map[string]*section
}

// A section is one family's tables and charts.
type section struct {
	Charts string
	Tables string
}

// Section is the family's section; a family that was not run has an empty one.
func (p *page) Section(family string) (*section, error) {
	s, ok := p.sections[family]
	if !ok {
		return &section{Tables: "Not part of this run.\n"}, nil
	}
	return s, nil
}

// charted are the families whose speed is shown as a chart.
var charted = map[string]string{
	"statements": "statements", "bulk": "bulk", "reads": "reads", "writers": "writers", "group commit": "commits",
	"suites, one goroutine": "suites", "suites, large rows": "large", "suites, several goroutines": "concurrent",
}

func writeDocs(dir string, m *machine, o *options, results []*result) error {
	p := &page{
		Machine: m, Date: time.Now().Format("January 2006"), Rounds: o.rounds, Full: o.all, CPU: o.cpu,
		Command: strings.Join(append([]string{"go run ."}, os.Args[1:]...), " "),
		Pragmas: mattnParams, Budgets: markdownBudgets(results), sections: map[string]*section{},
	}
	if err := os.MkdirAll(filepath.Join(dir, "charts"), 0o755); err != nil {
		return err
	}
	families := map[string][]*result{}
	for _, r := range results {
		families[r.family] = append(families[r.family], r)
	}
	for family, rs := range families {
		s := &section{Tables: markdownTables(rs)}
		p.sections[family] = s
		if base, ok := charted[family]; ok {
			if err := s.chart(dir, base, "Speed: "+family, rs, speedChart); err != nil {
				return err
			}
			if family == "writers" {
				if err := s.chart(dir, base+"-tail", "Latency: "+family, rs, tailChart); err != nil {
					return err
				}
			}
		}
	}
	t, err := template.ParseFS(templates, "performance.md.tmpl")
	if err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, "performance.md"))
	if err != nil {
		return err
	}
	if err := t.Execute(f, p); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// chart draws a chart and links to it.
func (s *section) chart(dir, base, title string, results []*result, draw func(file string, results []*result) error) error {
	name := "charts/" + base + ".svg"
	s.Charts += fmt.Sprintf("![%s](%s)\n", title, name)
	return draw(filepath.Join(dir, name), results)
}

func markdownBudgets(results []*result) string {
	var b strings.Builder
	b.WriteString("| work | budget | measured: median (lowest–highest) | |\n| --- | --- | --- | --- |\n")
	for _, r := range results {
		for _, v := range r.verdicts() {
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", v.work, v.budget, v.value, v.result)
		}
	}
	return b.String()
}

// markdownTables has a table per workload.
func markdownTables(results []*result) string {
	var b strings.Builder
	for _, r := range results {
		fmt.Fprintf(&b, "**%s.** %s\n\n", r.name, r.what)
		if r.skip != "" {
			fmt.Fprintf(&b, "Not measured: %s.\n\n", r.skip)
			continue
		}
		rows := [][]string{}
		width := 0
		for _, s := range r.subjects {
			row := r.row(s.name)
			rows = append(rows, row)
			width = max(width, len(row))
		}
		fmt.Fprintf(&b, "| | median |%s\n|%s\n", r.heading(width), strings.Repeat(" --- |", width+1))
		for i, s := range r.subjects {
			row := append(rows[i], make([]string, width-len(rows[i]))...)
			fmt.Fprintf(&b, "| %s | %s |\n", s.name, strings.Join(row, " | "))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// heading names the columns after the first two.
func (r *result) heading(width int) string {
	if width < 2 {
		return ""
	}
	return " times as fast as " + r.baseline + " |" + strings.Repeat(" |", width-2)
}

// trimmed writes a number without needless zeros.
func trimmed(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

package main

import (
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// Charts of a family of workloads, as SVG.

// The palette of Okabe and Ito, which people who see few colours can tell apart.
var palette = map[string]color.Color{
	coop.name:        color.RGBA{0x00, 0x72, 0xB2, 0xFF},
	coopOff.name:     color.RGBA{0x56, 0xB4, 0xE9, 0xFF},
	bulkName:         color.RGBA{0x00, 0x9E, 0x73, 0xFF},
	coopChanges.name: color.RGBA{0x00, 0x9E, 0x73, 0xFF},
	mattn.name:       color.RGBA{0x99, 0x99, 0x99, 0xFF},
	mattnCached.name: color.RGBA{0x66, 0x66, 0x66, 0xFF},
	mattnSplit.name:  color.RGBA{0x33, 0x33, 0x33, 0xFF},
	modernc.name:     color.RGBA{0xE6, 0x9F, 0x00, 0xFF},
	ncruces.name:     color.RGBA{0xD5, 0x5E, 0x00, 0xFF},
	zombiezen.name:   color.RGBA{0xCC, 0x79, 0xA7, 0xFF},
}

const (
	barWidth  = 0.32 * vg.Centimeter
	groupGap  = 0.5 * vg.Centimeter
	chartSize = 22 * vg.Centimeter
	margins   = 2.6 * vg.Centimeter
)

// speedChart shows how many times as fast as the baseline each subject is: the
// median, and as a line the range over the rounds.
func speedChart(file string, results []*result) error {
	return barChart(file, "times as fast as "+results[0].baseline+" (longer is better)", results, 1, func(r *result, name string) (spread, bool) {
		if name == r.baseline {
			return spread{}, false
		}
		return r.over(func(one round) float64 { return one[r.baseline].perOp() / one[name].perOp() }), true
	})
}

// tailChart shows the latency that 99.9 % of the operations stay within.
func tailChart(file string, results []*result) error {
	return barChart(file, "p99.9 of a "+results[0].unit+" in milliseconds (shorter is better)", results, 0, func(r *result, name string) (spread, bool) {
		return r.over(func(one round) float64 { return one[name].percentile(0.999) * 1000 }), true
	})
}

// barChart draws a group of bars per workload, and a line at the mark if that is
// not zero.
func barChart(file, label string, results []*result, mark float64, value func(r *result, name string) (spread, bool)) error {
	names := subjectNames(results)
	p := plot.New()
	p.X.Label.Text = label
	p.X.Min = 0
	p.Add(plotter.NewGrid())
	group := vg.Length(len(names))*barWidth + groupGap
	height := group * vg.Length(len(results))
	// In data units a group is 1 high.
	unit := 1 / float64(group)

	var most float64
	var drawn []string
	for i, name := range names {
		offset := (float64(len(names)-1)/2 - float64(i)) * float64(barWidth)
		var values plotter.Values
		var ranges bars
		shown := false
		for j, r := range results {
			y := float64(len(results)-1-j) + offset*unit
			var s spread
			if r.has(name) {
				var ok bool
				if s, ok = value(r, name); ok {
					shown = true
					most = max(most, s.high)
					ranges.add(s, y)
				}
			}
			values = append([]float64{s.median}, values...)
		}
		if !shown {
			continue
		}
		b, err := plotter.NewBarChart(values, barWidth)
		if err != nil {
			return err
		}
		b.Horizontal = true
		b.Color = palette[name]
		b.LineStyle.Width = 0
		b.Offset = vg.Length(offset)
		whiskers, err := plotter.NewXErrorBars(ranges)
		if err != nil {
			return err
		}
		whiskers.LineStyle.Width = vg.Points(0.6)
		whiskers.CapWidth = vg.Points(3)
		p.Add(b, whiskers)
		p.Legend.Add(name, b)
		drawn = append(drawn, name)
	}
	if mark != 0 {
		line, err := plotter.NewLine(plotter.XYs{{X: mark, Y: -0.5}, {X: mark, Y: float64(len(results)) - 0.5}})
		if err != nil {
			return err
		}
		line.Width = vg.Points(1)
		line.Dashes = []vg.Length{vg.Points(4), vg.Points(2)}
		p.Add(line)
		p.Legend.Add(results[0].baseline, line)
	}
	var labels []string
	for _, r := range results {
		labels = append([]string{r.name}, labels...)
	}
	p.NominalY(labels...)
	p.Y.Min, p.Y.Max = -0.5, float64(len(results))-0.5
	p.X.Max = most * 1.45 // room for the legend
	p.X.Tick.Marker = wholeTicks{}
	p.Legend.Top = true
	p.Legend.TextStyle.Font.Size = vg.Points(9)
	height = max(height, vg.Length(len(drawn)+1)*0.5*vg.Centimeter) + margins
	return p.Save(chartSize, height, file)
}

// subjectNames are the names of all subjects, in the order of their first
// appearance.
func subjectNames(results []*result) (names []string) {
	seen := map[string]bool{}
	for _, r := range results {
		for _, s := range r.subjects {
			if !seen[s.name] {
				seen[s.name] = true
				names = append(names, s.name)
			}
		}
	}
	return names
}

func (r *result) has(name string) bool {
	for _, s := range r.subjects {
		if s.name == name {
			return true
		}
	}
	return false
}

// bars are the points of error bars along the x axis.
type bars struct {
	plotter.XYs
	plotter.XErrors
}

func (b *bars) add(s spread, y float64) {
	b.XYs = append(b.XYs, plotter.XY{X: s.median, Y: y})
	b.XErrors = append(b.XErrors, struct{ Low, High float64 }{s.low - s.median, s.high - s.median})
}

// wholeTicks sets few, round marks.
type wholeTicks struct{}

func (wholeTicks) Ticks(low, high float64) (ticks []plot.Tick) {
	step := math.Pow(10, math.Floor(math.Log10(high/4)))
	for _, m := range []float64{1, 2, 5, 10} {
		if high/(m*step) <= 8 {
			step *= m
			break
		}
	}
	for v := 0.0; v <= high; v += step {
		ticks = append(ticks, plot.Tick{Value: v, Label: trimmed(v)})
	}
	return ticks
}

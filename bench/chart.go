package main

import (
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Charts of a family of workloads, as SVG.

// The palette of Okabe and Ito, which people who see few colours can tell apart.
var palette = map[string]color.Color{
	coop.name:        color.RGBA{0x00, 0x72, 0xB2, 0xFF},
	coopOff.name:     color.RGBA{0x56, 0xB4, 0xE9, 0xFF},
	coopSplit.name:   color.RGBA{0x00, 0x9E, 0x73, 0xFF},
	bulkName:         color.RGBA{0x00, 0x9E, 0x73, 0xFF},
	coopChanges.name: color.RGBA{0x00, 0x9E, 0x73, 0xFF},
	mattn.name:       color.RGBA{0x99, 0x99, 0x99, 0xFF},
	mattnTxName:      color.RGBA{0x66, 0x66, 0x66, 0xFF},
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
	names := shown(results, value)
	p := plot.New()
	p.X.Label.Text = label
	p.X.Min = 0
	p.Add(plotter.NewGrid())
	group := vg.Length(len(names))*barWidth + groupGap
	var most float64
	for i, name := range names {
		w := whiskers{offset: (vg.Length(len(names)-1)/2 - vg.Length(i)) * barWidth}
		var medians plotter.Values
		for j := range results {
			// The first workload is to be on top, and the axis runs upwards.
			r := results[len(results)-1-j]
			s := spread{}
			if r.has(name) && r.skip == "" {
				s, _ = value(r, name)
			}
			most = max(most, s.high)
			w.spreads = append(w.spreads, s)
			medians = append(medians, s.median)
		}
		b, err := plotter.NewBarChart(medians, barWidth)
		if err != nil {
			return err
		}
		b.Horizontal = true
		b.Color = palette[name]
		b.LineStyle.Width = 0
		b.Offset = w.offset
		p.Add(b, w)
		p.Legend.Add(name, b)
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
	p.Legend.XOffs = -vg.Points(6)
	p.Legend.Padding = vg.Points(2)
	p.Legend.TextStyle.Font.Size = vg.Points(9)
	lines := vg.Length(len(names) + 1)
	return p.Save(chartSize, max(group*vg.Length(len(results)), lines*0.5*vg.Centimeter)+margins, file)
}

// shown are the names of all subjects that have a value anywhere, in the order of
// their first appearance.
func shown(results []*result, value func(*result, string) (spread, bool)) (names []string) {
	seen := map[string]bool{}
	for _, r := range results {
		for _, s := range r.subjects {
			if _, ok := value(r, s.name); ok && !seen[s.name] {
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

// whiskers draw the ranges of one subject over its bars. The error bars of the
// plotting library know no offset within a group.
type whiskers struct {
	spreads []spread // from the bottom to the top
	offset  vg.Length
}

func (w whiskers) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	style := draw.LineStyle{Color: color.Black, Width: vg.Points(0.6)}
	const cap = vg.Length(2)
	for i, s := range w.spreads {
		if s.high == 0 {
			continue
		}
		at := y(float64(i)) + w.offset
		c.StrokeLine2(style, x(s.low), at, x(s.high), at)
		c.StrokeLine2(style, x(s.low), at-cap, x(s.low), at+cap)
		c.StrokeLine2(style, x(s.high), at-cap, x(s.high), at+cap)
	}
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

package main

import (
	"fmt"
	"image/color"
	"math"
	"runtime"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// table is the results in Markdown.
func table(results []result, rounds int, about string) string {
	var b strings.Builder
	b.WriteString("# Benchmarks\n\n`make bench` measures this library against other ways to do the same work.\n`go run . -docs ../../docs` in `advisory_test/bench` writes this table and\n[its plot](bench.png). A ratio of 1.00 means equally quick.\n\n")
	fmt.Fprintf(&b, "The table shows medians of %d rounds, which measure both in turn.\nClient and server ran on one machine with %d processors, %s, %s.\nOnly the ratios apply to other machines.\n\n",
		rounds, runtime.NumCPU(), about, runtime.Version())
	b.WriteString("| work | driver | against | times quicker (spread) | target | ours | the other |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, r := range results {
		met := ""
		if r.median() < r.target {
			met = ", not met"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | **%.2f** (%.2f to %.2f) | %.2f%s | %v | %v |\n", r.name, r.driver, r.against,
			r.median(), r.ratios[0], r.ratios[len(r.ratios)-1], r.target, met, short(r.ours), short(r.hand))
	}
	return b.String()
}

func short(d time.Duration) time.Duration {
	switch {
	case d > time.Second:
		return d.Round(10 * time.Millisecond)
	case d > time.Millisecond:
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(100 * time.Nanosecond)
}

// plotTo draws the ratios as bars on a logarithmic scale, and the targets as marks.
func plotTo(path string, results []result) error {
	p := plot.New()
	p.Title.Text = "How many times quicker than the other way (bar), and the target (line)"
	p.X.Label.Text = "times quicker, logarithmic"
	p.X.Scale = plot.LogScale{}
	p.X.Tick.Marker = plot.LogTicks{Prec: -1}
	p.X.Min, p.X.Max = 0.4, 1000
	var names []string
	for i := range results {
		r := results[len(results)-1-i]
		names = append(names, fmt.Sprintf("%s\nagainst %s, %s", r.name, r.against, r.driver))
		y := float64(i)
		bar, err := plotter.NewPolygon(plotter.XYs{{X: p.X.Min, Y: y - 0.3}, {X: math.Min(r.median(), p.X.Max), Y: y - 0.3}, {X: math.Min(r.median(), p.X.Max), Y: y + 0.3}, {X: p.X.Min, Y: y + 0.3}})
		if err != nil {
			return err
		}
		bar.Color = color.RGBA{0x33, 0x67, 0x91, 0xff}
		bar.LineStyle.Width = 0
		mark, err := plotter.NewLine(plotter.XYs{{X: r.target, Y: y - 0.42}, {X: r.target, Y: y + 0.42}})
		if err != nil {
			return err
		}
		mark.Color = color.RGBA{0xd0, 0x40, 0x20, 0xff}
		mark.Width = vg.Points(2.5)
		p.Add(bar, mark)
	}
	p.NominalY(names...)
	return p.Save(9*vg.Inch, vg.Length(float64(len(results))*0.42+1.2)*vg.Inch, path)
}

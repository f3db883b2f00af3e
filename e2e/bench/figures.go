package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/leasecast/leasecast/e2e/harness"
)

// figure is a value of out/bench.json.
type figure struct {
	key string
	// most is what it should be at most. A negative one is no aim: the value is for information.
	most float64
}

// noAim is the aim of a figure for information.
const noAim = -1

// figures are the measured values, by key.
type figures map[string]float64

// table shows the figures beside their aims.
func (f figures) table(chosen []measurement) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprint(w, "figure\tmeasured\taim\t\t\n") // a Builder takes everything
	for _, m := range chosen {
		for _, is := range m.figures {
			v, measured := f[is.key]
			value, aim, verdict := "not measured", "", ""
			if measured {
				value = strconv.FormatFloat(v, 'f', 4, 64)
			}
			if is.most > noAim {
				aim = fmt.Sprintf("≤ %v", is.most)
			}
			if measured && aim != "" && v > is.most {
				verdict = "MISSED"
			}
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t\n", is.key, value, aim, verdict)
		}
	}
	_ = w.Flush()
	return out.String()
}

// write writes the figures into a file. What could not be measured is null.
func (f figures) write(file string, chosen []measurement) error {
	all := map[string]*float64{}
	for _, m := range chosen {
		for _, is := range m.figures {
			all[is.key] = nil
			if v, ok := f[is.key]; ok {
				all[is.key] = &v
			}
		}
	}
	return harness.WriteReport(file, all)
}

// quantile returns the least of the values that is not exceeded by a share q of them. There must be some.
func quantile(values []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(values))
	i := int(q*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

func median(values []time.Duration) time.Duration { return quantile(values, 0.5) }

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

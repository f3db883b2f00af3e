package acts

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"time"
)

// Forever is the End of an act that has no line after it.
const Forever = time.Duration(math.MaxInt64)

// Act is one act, as its two lines tell it.
type Act struct {
	Line                 // the line before; At is when the act can have begun at the earliest
	End    time.Duration // when it was over at the latest, Forever if nobody knows
	Result string
}

// Read reads one log. A last line that was cut short, by a process that was killed,
// is left out: if it stood after an act, that act has no end.
func Read(r io.Reader) ([]Act, error) {
	var all []Act
	open := map[int64]int{} // ID to index
	in := bufio.NewReader(r)
	for n := 1; ; n++ {
		raw, err := in.ReadBytes('\n')
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		var line Line
		if err := json.Unmarshal(raw, &line); err != nil {
			return nil, fmt.Errorf("act log, line %d: %w", n, err)
		}
		i, begun := open[line.ID]
		switch {
		case line.Phase == Before:
			open[line.ID] = len(all)
			all = append(all, Act{Line: line, End: Forever})
		case line.Phase == After && begun:
			all[i].End, all[i].Result = line.At, line.Result
			delete(open, line.ID)
		default:
			return nil, fmt.Errorf("act log, line %d: phase %q of act %d, which has not begun", n, line.Phase, line.ID)
		}
	}
}

// Overlap is a pair of acts that two clusters did in one namespace at one time.
type Overlap struct{ First, Second Act }

// For is how long both acts lasted together.
func (o Overlap) For() time.Duration {
	return min(o.First.End, o.Second.End) - o.Second.At
}

// Overlaps returns every overlap among the acts of any number of logs. An act
// counts from the line before it to the line after it, whether it succeeded or not.
func Overlaps(all []Act) []Overlap {
	all = slices.SortedFunc(slices.Values(all), func(a, b Act) int { return cmp.Compare(a.At, b.At) })
	var found []Overlap
	underWay := map[string][]Act{} // by namespace: those that may not be over yet
	for _, a := range all {
		still := slices.DeleteFunc(underWay[a.Namespace], func(o Act) bool { return o.End <= a.At })
		for _, o := range still {
			if o.Cluster != a.Cluster {
				found = append(found, Overlap{o, a})
			}
		}
		underWay[a.Namespace] = append(still, a)
	}
	return found
}

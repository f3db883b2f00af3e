package hubfailover

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// figures collects how long takeovers took.
type figures struct{ first, last, left []time.Duration }

func (f *figures) String() string {
	line := func(name string, ds []time.Duration) string {
		ds = slices.Sorted(slices.Values(ds))
		return fmt.Sprintf("%s median %.1f s, worst %.1f s", name, ds[len(ds)/2].Seconds(), ds[len(ds)-1].Seconds())
	}
	return fmt.Sprintf("%d takeovers: %s; %s; what was left of the term least renewed: %.1f s",
		len(f.first), line("first renewal", f.first), line("all renewed", f.last), slices.Min(f.left).Seconds())
}

// takenOver returns when every namespace was renewed by another replica than the one that was lost at the
// instant, and notes how long that took.
func (f *figures) takenOver(v *view, lost time.Duration) {
	var first map[string]time.Duration
	musttest.Eventually(v.t, harness.Default.Duration+slack, "all namespaces are renewed by the other replica",
		func(context.Context) (err error) {
			first, err = v.stampedAfter(lost)
			return err
		})
	all := slices.Collect(maps.Values(first))
	f.first = append(f.first, slices.Min(all)-lost)
	f.last = append(f.last, slices.Max(all)-lost)
	f.left = append(f.left, v.unbroken())
	n := len(f.first) - 1
	v.t.Logf("takeover %d: first renewal after %.2f s, all after %.2f s, %.2f s were left",
		n+1, f.first[n].Seconds(), f.last[n].Seconds(), f.left[n].Seconds())
}

// TestAKilledWriterIsNotMissed: kill -9 of the replica that writes, at any time between two renewals, ends
// no term.
func TestAKilledWriterIsNotMissed(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	var f figures
	for range *kills {
		writer := shared.settled(t)
		v := look(t, shared)
		harness.After(t, harness.Now().Boot+time.Duration(random.Int64N(int64(harness.Default.Renew))))
		musttest.Do(t, writer.Kill())
		lost := harness.Now().Boot
		shared.drop(writer)
		f.takenOver(v, lost)
		v.undecided()
		if t.Failed() {
			break
		}
	}
	t.Log(f.String())
}

// TestAWriterThatWakesWritesNothing: a replica is paused and resumed long after it has lost the election. No term
// ends meanwhile. It sends no write to any API server from then on.
func TestAWriterThatWakesWritesNothing(t *testing.T) {
	writer := shared.settled(t)
	v := look(t, shared)
	musttest.Do(t, writer.Pause())
	lost := harness.Now().Boot
	asleepSince := time.Now()
	shared.drop(writer)
	var f figures
	f.takenOver(v, lost)
	v.undecided()
	t.Log(f.String())
	if len(writesOf(t, shared, writer, time.Time{})) == 0 {
		t.Fatalf("%s wrote nothing even while it was elected: writes are not told apart", writer.Name())
	}
	harness.After(t, lost+*asleep)
	if late := writesOf(t, shared, writer, asleepSince); len(late) > 0 {
		t.Fatalf("%s wrote while it slept: clocks or names are wrong: %v", writer.Name(), late)
	}

	woke := time.Now()
	musttest.Do(t, writer.Resume())
	// It gives up and begins again as a standby; that is watched for two renewals of everybody.
	harness.After(t, harness.Now().Boot+2*harness.Default.Renew)
	for _, w := range writesOf(t, shared, writer, woke) {
		t.Errorf("written after waking: %s", w)
	}
	musttest.Do(t, writer.Check())
	if begun := musttest.Get(harness.BegunAgain(writer.Log()))(t); begun != 1 {
		t.Errorf("%s has begun again %d times, want once: it has lost the election", writer.Name(), begun)
	}
	if campaigns := strings.Count(read(t, writer.Log()), campaigning); campaigns != 2 {
		t.Errorf("%s was a candidate %d times, want twice: it has to stand by again", writer.Name(), campaigns)
	}
	musttest.Do(t, writer.Kill())
	v.unbroken()
	v.undecided()
}

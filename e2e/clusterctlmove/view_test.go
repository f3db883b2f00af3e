package clusterctlmove

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/e2e/harness"
)

// view is what a test saw, from its beginning on.
type view struct {
	*harness.View
	t *testing.T
}

func look(t *testing.T) *view {
	return &view{View: first.LookFor(t), t: t}
}

// unbroken fails the test unless one term of each namespace but some went on all the time, in the epoch
// that it had before. It returns the least that was left of a term when its renewal could be seen.
func (v *view) unbroken(epochs map[string]int64, but ...string) (closest time.Duration) {
	v.t.Helper()
	closest = time.Hour
	terms := v.Terms()
	now := harness.Now().Wall
	for namespace, leader := range leaders {
		if slices.Contains(but, namespace) {
			continue
		}
		place := harness.Place{Namespace: namespace, Cluster: lease.Identity(leader, harness.FleetNamespace)}
		for other := range terms {
			if other.Namespace == namespace && other != place {
				v.t.Errorf("%s leads; %s led in epoch %d", other, leader, epochs[namespace])
			}
		}
		seen := terms[place]
		if len(seen) == 0 {
			v.t.Errorf("%s: %s was not seen to lead", namespace, leader)
			continue
		}
		if seen[0].Epoch != epochs[namespace] {
			v.t.Errorf("%s: epoch %d, was %d", place, seen[0].Epoch, epochs[namespace])
		}
		left, err := harness.Unbroken(seen, now)
		if err != nil {
			v.t.Errorf("%s: %v", place, err)
		}
		closest = min(closest, left)
	}
	return closest
}

// undisturbed fails the test if the acts of two clusters meet, if their epochs fall, or if another
// cluster acts than the one that did before. It returns the longest pause between two acts in one namespace.
func (v *view) undisturbed() (longest time.Duration) {
	v.t.Helper()
	for _, verdict := range v.harmless() {
		if len(verdict.Changes) > 0 {
			v.t.Errorf("%s: the acting cluster changed: %v", verdict.Namespace, verdict.Changes)
		}
	}
	acts := harness.Get(first.Acts())(v.t)
	last := map[string]time.Duration{}
	for _, a := range acts {
		if before, ok := last[a.Namespace]; ok {
			longest = max(longest, a.Begin-before)
		}
		last[a.Namespace] = max(last[a.Namespace], a.Begin)
	}
	return longest
}

// harmless fails the test if the acts of two clusters meet, or if their epochs fall.
func (v *view) harmless() []harness.Verdict {
	v.t.Helper()
	verdicts, err := v.Judge()
	if err != nil {
		v.t.Error(err)
	}
	return verdicts
}

// marks returns, of all Leases that exist, how many carry which mark.
func (v *view) marks() map[string]int {
	type place struct{ cluster, namespace, name string }
	last := map[place]string{}
	for _, w := range v.Leases {
		for _, s := range w.Seen() {
			c, _ := wire.Read(s.Object)
			p := place{c.Cluster, c.Namespace, c.Name}
			if last[p] = c.Hub; s.Gone {
				delete(last, p)
			}
		}
	}
	n := map[string]int{}
	for _, hub := range last {
		n[hub]++
	}
	return n
}

// markedBy returns when all Leases carry one mark.
func (v *view) markedBy(hub string) {
	first.Eventually(v.t, patience, "all Leases are marked by one hub", func(context.Context) error {
		if n := v.marks(); len(n) != 1 || n[hub] == 0 {
			return fmt.Errorf("Leases by mark: %v, want all of %s", n, hub)
		}
		return nil
	})
}

// settled returns when all leaders' Leases, but for some, were renewed once more than when it was called.
func (v *view) settled(but ...string) {
	now := harness.Now().Wall
	first.Eventually(v.t, patience, "everybody is renewed", func(context.Context) error {
		renewed := map[string]bool{}
		for place, seen := range v.Terms() {
			renewed[place.Namespace] = renewed[place.Namespace] || seen[len(seen)-1].RenewTime.After(now)
		}
		for namespace := range leaders {
			if !slices.Contains(but, namespace) && !renewed[namespace] {
				return fmt.Errorf("%s: not renewed since", namespace)
			}
		}
		return nil
	})
}

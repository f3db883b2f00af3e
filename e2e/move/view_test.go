package move

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/e2e/drill"
)

// view is what a test saw of the copies, from its beginning on, and which acts are not its own.
type view struct {
	t      *testing.T
	w      *world
	copies map[string]*drill.Watch[*coordinationv1.Lease]
	acts   int
}

func look(t *testing.T, w *world) *view {
	t.Helper()
	v := &view{t: t, w: w, copies: map[string]*drill.Watch[*coordinationv1.Lease]{}}
	for _, m := range w.d.Fleet.Members() {
		watch, err := w.d.WatchCopies(t.Context(), m.Name())
		must(t, err)
		t.Cleanup(watch.Stop)
		v.copies[m.Name()] = watch
	}
	acts, err := w.d.Acts()
	must(t, err)
	v.acts = len(acts)
	return v
}

// sighting is one of a copy that names the cluster it lives in.
type sighting struct {
	at lease.Reading
	lease.Copy
}

// terms returns, by namespace, what was seen of copies that name the cluster they live in.
func (v *view) terms() map[string][]sighting {
	all := map[string][]sighting{}
	for _, w := range v.copies {
		for _, s := range w.Seen() {
			if c, _ := wire.Read(s.Object); c.LeadsHere() && !s.Gone {
				all[c.Namespace] = append(all[c.Namespace], sighting{s.At, c})
			}
		}
	}
	return all
}

// unbroken fails the test unless one term of each namespace but some stood all the time, in the epoch
// that it had before. It returns the least that was left of a term when its renewal could be seen.
func (v *view) unbroken(epochs map[string]int64, but ...string) (closest time.Duration) {
	v.t.Helper()
	closest = time.Hour
	terms := v.terms()
	for namespace, leader := range leaders {
		if slices.Contains(but, namespace) {
			continue
		}
		seen := terms[namespace]
		if len(seen) == 0 {
			v.t.Errorf("%s: nobody was seen to lead", namespace)
			continue
		}
		for i, s := range seen {
			if s.Epoch != epochs[namespace] || s.Cluster != lease.Identity(leader, drill.FleetNamespace) {
				v.t.Errorf("%s: %s leads in epoch %d; %s led in epoch %d", namespace, s.Cluster, s.Epoch, leader, epochs[namespace])
			}
			if i == 0 {
				continue
			}
			left := seen[i-1].Renewed.Add(seen[i-1].Duration).Sub(s.at.Wall)
			if closest = min(closest, left); left <= 0 {
				v.t.Errorf("%s: the term lapsed: it ended %v before its renewal could be seen", namespace, -left)
			}
		}
		if last := seen[len(seen)-1]; !last.Live(drill.Now().Wall) {
			v.t.Errorf("%s: the term ended at %v and was not renewed", namespace, last.Renewed.Add(last.Duration))
		}
	}
	return closest
}

// undisturbed fails the test if the acts of two clusters meet, if their epochs fall, or if another
// cluster acts than the one that did before. It returns the longest pause between two acts in one namespace.
func (v *view) undisturbed() (longest time.Duration) {
	v.t.Helper()
	v.harmless()
	acts, err := v.w.d.Acts()
	must(v.t, err)
	last := map[string]time.Duration{}
	for _, verdict := range drill.Judge(acts) {
		if len(verdict.Changes) > 0 {
			v.t.Errorf("%s: the acting cluster changed: %v", verdict.Namespace, verdict.Changes)
		}
	}
	for _, a := range acts {
		if before, ok := last[a.Namespace]; ok {
			longest = max(longest, a.Begin-before)
		}
		last[a.Namespace] = max(last[a.Namespace], a.Begin)
	}
	return longest
}

// harmless fails the test if the acts of two clusters meet, or if their epochs fall.
func (v *view) harmless() {
	v.t.Helper()
	acts, err := v.w.d.Acts()
	must(v.t, err)
	if len(acts) <= v.acts {
		v.t.Error("nobody has acted")
	}
	for _, b := range drill.Breaches(drill.Judge(acts)) {
		v.t.Error(b)
	}
}

// marks returns, of all copies that exist, how many carry which mark.
func (v *view) marks() map[string]int {
	type place struct{ cluster, namespace, name string }
	last := map[place]string{}
	for _, w := range v.copies {
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

// markedBy returns when all copies carry one mark.
func (v *view) markedBy(hub string) {
	v.t.Helper()
	await(v.t, patience, "all copies are marked by one hub", func(context.Context) error {
		if n := v.marks(); len(n) != 1 || n[hub] == 0 {
			return fmt.Errorf("copies by mark: %v, want all of %s", n, hub)
		}
		return nil
	})
}

// settled returns when all leaders' copies, but for some, were renewed once more than when it was called.
func (v *view) settled(but ...string) {
	v.t.Helper()
	now := drill.Now().Wall
	await(v.t, patience, "everybody is renewed", func(context.Context) error {
		terms := v.terms()
		for namespace := range leaders {
			if seen := terms[namespace]; !slices.Contains(but, namespace) && (len(seen) == 0 || !seen[len(seen)-1].Renewed.After(now)) {
				return fmt.Errorf("%s: not renewed since", namespace)
			}
		}
		return nil
	})
}

package hubfailover

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
)

// view is all that a test saw, from its beginning on.
type view struct {
	*harness.View
	t       *testing.T
	p       *pair
	demoted map[string]int
}

// look begins to watch Leases and records, straight at the API servers.
func look(t *testing.T, p *pair) *view {
	demoted := demotions(t, p)
	return &view{View: p.d.LookFor(t), t: t, p: p, demoted: demoted}
}

// demotions counts, by namespace, how often a guestbook lost a term that it had.
func demotions(t *testing.T, p *pair) map[string]int {
	t.Helper()
	n := map[string]int{}
	for _, m := range p.d.Fleet.Members() {
		for line := range strings.Lines(read(t, p.d.Guestbook(m.Name()).Log())) {
			if !strings.Contains(line, "This cluster does not lead any more") {
				continue
			}
			var entry struct{ Namespace string }
			if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Namespace == "" {
				t.Fatalf("log of the guestbook in %s: %q names no namespace (%v)", m.Name(), line, err)
			}
			n[entry.Namespace]++
		}
	}
	return n
}

// unbroken fails the test unless every term of its beginning goes on and each renewal was visible
// before the deadline, but for the namespaces that are moved. It returns what was left of the term at the closest
// renewal.
func (v *view) unbroken(moved ...string) (closest time.Duration) {
	v.t.Helper()
	closest = time.Hour
	terms := v.Terms()
	maps.DeleteFunc(terms, func(p harness.Place, _ []harness.Led) bool { return slices.Contains(moved, p.Namespace) })
	if len(terms) != len(leaders)-len(moved) {
		v.t.Errorf("terms of %v, want one for each of the namespaces that are not moved", slices.Collect(maps.Keys(terms)))
	}
	now := harness.Now().Wall
	for key, seen := range terms {
		left, err := harness.Unbroken(seen, now)
		if err != nil {
			v.t.Errorf("%s: %v", key, err)
		}
		closest = min(closest, left)
	}
	for namespace, n := range demotions(v.t, v.p) {
		if lost := n - v.demoted[namespace]; lost != 0 && !slices.Contains(moved, namespace) {
			v.t.Errorf("a guestbook lost its term in %s %d times", namespace, lost)
		}
	}
	v.judge()
	return closest
}

// undecided fails the test unless the records have said all the time that the leaders lead.
func (v *view) undecided(moved ...string) {
	v.t.Helper()
	for _, s := range v.Records.Seen() {
		r := s.Object
		if slices.Contains(moved, r.Name) {
			continue
		}
		if r.Spec.Leader != leaders[r.Name] || r.Spec.State != v1alpha1.StateLeading || s.Gone {
			v.t.Errorf("record %s: leader %q, state %s, reason %s: want %s to lead all the time",
				r.Name, r.Spec.Leader, r.Spec.State, r.Spec.Reason, leaders[r.Name])
		}
	}
}

// judge fails the test on any act that must not be, since the fleet began, or if an epoch has fallen.
func (v *view) judge() {
	v.t.Helper()
	if _, err := v.Judge(); err != nil {
		v.t.Error(err)
	}
	for member, w := range v.Leases {
		highest := map[string]int64{}
		for _, s := range w.Seen() {
			c, _ := wire.Read(s.Object)
			if c.Epoch < highest[c.Namespace] {
				v.t.Errorf("the Lease of %s in %s fell from epoch %d to %d", c.Namespace, member, highest[c.Namespace], c.Epoch)
			}
			highest[c.Namespace] = max(highest[c.Namespace], c.Epoch)
		}
	}
}

// stampedAfter returns, for each namespace that somebody leads, when its first stamp after the instant
// could be seen, on the boot clock; an error names the first namespace that has none.
func (v *view) stampedAfter(instant time.Duration) (map[string]time.Duration, error) {
	first := map[string]time.Duration{}
	for key, seen := range v.Terms() {
		i := slices.IndexFunc(seen, func(s harness.Led) bool { return s.Stamp() > instant })
		if i < 0 {
			return nil, fmt.Errorf("%s: no stamp after the fault", key)
		}
		first[key.Namespace] = seen[i].At.Boot
	}
	return first, nil
}

// writesOf returns the writes that a replica asked any API server for after the instant, probes and dry
// runs included.
func writesOf(t *testing.T, p *pair, r *replica, instant time.Time) []string {
	t.Helper()
	if r.identity == "" {
		t.Fatalf("%s was never elected: its writes cannot be told", r.Name())
	}
	var found []string
	for _, s := range p.d.Fleet.Servers() {
		writes := harness.Get(s.Writes())(t)
		for _, w := range writes {
			if strings.Contains(w.Agent, r.identity) && w.Received.After(instant) {
				found = append(found, s.Name()+": "+w.String())
			}
		}
	}
	return found
}

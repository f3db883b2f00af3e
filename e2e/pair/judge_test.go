package pair

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/drill"
)

// view is all that a test saw, from its beginning on.
type view struct {
	t       *testing.T
	p       *pair
	copies  map[string]*drill.Watch[*coordinationv1.Lease]
	records *drill.Watch[*v1alpha1.NamespaceLeader]
	demoted map[string]int
	acts    int
}

// look begins to watch copies and records, straight at the API servers.
func look(t *testing.T, p *pair) *view {
	t.Helper()
	v := &view{t: t, p: p, copies: map[string]*drill.Watch[*coordinationv1.Lease]{}, demoted: demotions(t, p)}
	for _, m := range p.d.Fleet.Members() {
		w, err := p.d.WatchCopies(t.Context(), m.Name())
		must(t, err)
		t.Cleanup(w.Stop)
		v.copies[m.Name()] = w
	}
	var err error
	v.records, err = p.d.WatchRecords(t.Context())
	must(t, err)
	t.Cleanup(v.records.Stop)
	acts, err := p.d.Acts()
	must(t, err)
	v.acts = len(acts)
	return v
}

// demotions counts, by namespace, how often a guestbook lost a term that it had.
func demotions(t *testing.T, p *pair) map[string]int {
	t.Helper()
	n := map[string]int{}
	for _, m := range p.d.Fleet.Members() {
		for line := range strings.Lines(read(t, p.d.Guestbook(m.Name()).Log())) {
			if !strings.Contains(line, "This cluster does not lead") {
				continue
			}
			var entry struct{ Namespace struct{ Name string } }
			if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Namespace.Name == "" {
				t.Fatalf("log of the guestbook in %s: %q names no namespace (%v)", m.Name(), line, err)
			}
			n[entry.Namespace.Name]++
		}
	}
	return n
}

// led is one sighting of a copy that names the cluster it lives in.
type led struct {
	at lease.Reading
	lease.Copy
}

// place is a copy's.
type place struct{ namespace, cluster string }

func (p place) String() string { return p.namespace + " in " + p.cluster }

// terms returns the sightings of copies that name the cluster they live in.
func (v *view) terms() map[place][]led {
	all := map[place][]led{}
	for _, w := range v.copies {
		for _, s := range w.Seen() {
			if c, _ := wire.Read(s.Object); c.LeadsHere() && !s.Gone {
				key := place{c.Namespace, c.Cluster}
				all[key] = append(all[key], led{s.At, c})
			}
		}
	}
	return all
}

// unbroken fails the test unless every term that stood at its beginning stands, and was renewed each
// time before its deadline had passed, but for the namespaces that are moved. It returns how close the closest renewal
// was: what was left of the term when the renewal could be seen.
func (v *view) unbroken(moved ...string) (closest time.Duration) {
	v.t.Helper()
	closest = time.Hour
	terms := v.terms()
	maps.DeleteFunc(terms, func(p place, _ []led) bool { return slices.Contains(moved, p.namespace) })
	if len(terms) != len(leaders)-len(moved) {
		v.t.Errorf("terms of %v, want one for each of the namespaces that are not moved", slices.Collect(maps.Keys(terms)))
	}
	now := drill.Now()
	for key, seen := range terms {
		for i, s := range seen[1:] {
			was := seen[i]
			if s.Epoch != was.Epoch {
				v.t.Errorf("%s: epoch %d became %d", key, was.Epoch, s.Epoch)
			}
			left := was.Renewed.Add(was.Duration).Sub(s.at.Wall)
			closest = min(closest, left)
			if left <= 0 {
				v.t.Errorf("%s: the term lapsed: it ended %v before its renewal could be seen", key, -left)
			}
		}
		if last := seen[len(seen)-1]; !last.Live(now.Wall) {
			v.t.Errorf("%s: the term ended at %v and was not renewed", key, last.Renewed.Add(last.Duration))
		}
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
	for _, s := range v.records.Seen() {
		r := s.Object
		if slices.Contains(moved, r.Name) {
			continue
		}
		if r.Status.Leader != leaders[r.Name] || r.Status.Phase != v1alpha1.PhaseLeading || s.Gone {
			v.t.Errorf("record %s: leader %q, phase %s, reason %s: want %s to lead all the time",
				r.Name, r.Status.Leader, r.Status.Phase, r.Status.Reason, leaders[r.Name])
		}
	}
}

// judge fails the test on any act that must not be, since the fleet began, or if an epoch has fallen.
func (v *view) judge() {
	v.t.Helper()
	acts, err := v.p.d.Acts()
	must(v.t, err)
	if len(acts) <= v.acts {
		v.t.Error("nobody acted: nothing was seen")
	}
	for _, b := range drill.Breaches(drill.Judge(acts)) {
		v.t.Error(b)
	}
	for member, w := range v.copies {
		highest := map[string]int64{}
		for _, s := range w.Seen() {
			c, _ := wire.Read(s.Object)
			if c.Epoch < highest[c.Namespace] {
				v.t.Errorf("the copy of %s in %s fell from epoch %d to %d", c.Namespace, member, highest[c.Namespace], c.Epoch)
			}
			highest[c.Namespace] = max(highest[c.Namespace], c.Epoch)
		}
	}
}

// stampedAfter returns, for each namespace that somebody leads, when its first stamp after the instant
// could be seen, on the boot clock; an error names the first namespace that has none.
func (v *view) stampedAfter(instant time.Duration) (map[string]time.Duration, error) {
	first := map[string]time.Duration{}
	for key, seen := range v.terms() {
		i := slices.IndexFunc(seen, func(s led) bool { return drill.BootOf(s.Renewed, s.at) > instant })
		if i < 0 {
			return nil, fmt.Errorf("%s: no stamp after the fault", key)
		}
		first[key.namespace] = seen[i].at.Boot
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
		writes, err := s.Writes()
		must(t, err)
		for _, w := range writes {
			if strings.Contains(w.Agent, r.identity) && w.Received.After(instant) {
				found = append(found, s.Name()+": "+w.String())
			}
		}
	}
	return found
}

// Package hubfailover proves that the hub can die without anyone noticing: two replicas as processes of
// their own under the RBAC of config/, three members, the default timings, guestbooks that act all the
// time, and what is done to the replica that writes.
//
// A few of each fault run with the other tests. The rest is for
//
//	make pair KILLS=100 ASLEEP=60s
//
// # Who wrote it
//
// Every API server keeps an audit log of all requests, and a replica calls itself
// leasecast-hub/<its identity in the election> in each of its requests: so a write is
// the writer's own word for who it is, noted by the server that got it.
package hubfailover

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/e2e/process"
)

var (
	kills  = flag.Int("kills", 3, "how often the writing replica is killed")
	asleep = flag.Duration("asleep", 20*time.Second, "how long a stopped replica sleeps")
)

const (
	// slack is what a machine with other work may add to what the protocol allows, client-go's
	// elector included, which looks every 1 to 2.2 seconds.
	slack = 10 * time.Second
	// patience bounds the wait for something that takes no time by the protocol.
	patience = time.Minute
)

// campaigning is what a hub logs when it is a candidate.
const campaigning = "Attempting to acquire leader lease"

// leaders are the namespaces and who leads them while all members are well.
var leaders = map[string]string{
	"shop": "east", "stock": "east", "post": "east",
	"bank": "west", "mint": "west",
	"mail": "south",
}

// shared is the fleet that the tests share, one after the other. Each test leaves two replicas and the leaders
// above.
var shared *pair

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	return harness.Main(m, harness.Options{
		Timings:  harness.Default,
		ActEvery: 100 * time.Millisecond,
		Audit:    true,
		Members: []harness.Member{
			{Name: "east", Priority: 100, Namespaces: []string{"shop", "stock", "post"}},
			{Name: "west", Priority: 50, Namespaces: []string{"shop", "stock", "post", "bank", "mint"}},
			{Name: "south", Priority: 10, Namespaces: []string{"shop", "bank", "mail"}},
		},
	}, func(_ context.Context, d *harness.Drill) error {
		shared = &pair{d: d, replicas: []*replica{{Process: d.Hubs()[0]}}}
		return nil
	})
}

// replica is a hub process and its name in the election, once that is known.
type replica struct {
	*process.Process
	identity string
}

// pair is the hub.
type pair struct {
	d        *harness.Drill
	replicas []*replica // those that live
}

// writer returns the replica that holds the election. An unknown identity is that of the one replica whose identity
// is not known yet.
func (p *pair) writer(ctx context.Context) (*replica, error) {
	_, holder, err := p.d.Election(ctx, harness.HubNamespace)
	if err != nil {
		return nil, err
	}
	var nameless []*replica
	for _, r := range p.replicas {
		if r.identity == holder && holder != "" {
			return r, nil
		}
		if r.identity == "" {
			nameless = append(nameless, r)
		}
	}
	if holder == "" || len(nameless) != 1 {
		return nil, fmt.Errorf("the election is held by %q, and %d replicas have no name yet", holder, len(nameless))
	}
	nameless[0].identity = holder
	return nameless[0], nil
}

// drop takes a replica off the list of those that live.
func (p *pair) drop(r *replica) {
	p.replicas = slices.DeleteFunc(p.replicas, func(other *replica) bool { return other == r })
}

// settled returns when two replicas run, of which one writes and the other is a candidate, and each namespace has the
// right leader.
func (p *pair) settled(t *testing.T) (writer *replica) {
	for len(p.replicas) < 2 {
		p.join(t)
	}
	musttest.Eventually(t, patience, "a replica of the pair is elected", func(ctx context.Context) (err error) {
		writer, err = p.writer(ctx)
		return err
	})
	p.led(t, patience)
	return writer
}

// join starts a replica and returns when it is a candidate. Its caches are filled by then or soon
// after, long before a predecessor's election ends.
func (p *pair) join(t *testing.T) *replica {
	t.Helper()
	if _, err := p.writer(t.Context()); err != nil && len(p.replicas) > 0 {
		t.Fatal(err) // one nameless replica at a time
	}
	process := musttest.Get(p.d.StartHub())(t)
	r := &replica{Process: process}
	musttest.Eventually(t, patience, process.Name()+" is a candidate", func(context.Context) error {
		musttest.Do(t, r.Check())
		return must.ErrorIf(!strings.Contains(read(t, r.Log()), campaigning), "its log does not say so")
	})
	p.replicas = append(p.replicas, r)
	return r
}

// led returns when the records and the leaders' Leases are as they are while all members are well.
func (p *pair) led(t *testing.T, limit time.Duration) {
	musttest.Eventually(t, limit, "each namespace has the right leader", func(ctx context.Context) error {
		for namespace, leader := range leaders {
			if _, err := p.d.Leading(ctx, leader, namespace, leader); err != nil {
				return fmt.Errorf("%s: %w", namespace, err)
			}
		}
		return nil
	})
}

func read(t *testing.T, file string) string {
	content := musttest.Get(os.ReadFile(file))(t)
	return string(content)
}

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
// before the deadline. It returns what was left of the term at the closest renewal.
func (v *view) unbroken() (closest time.Duration) {
	v.t.Helper()
	closest = time.Hour
	terms := v.Terms()
	if len(terms) != len(leaders) {
		v.t.Errorf("terms of %v, want one for each namespace", slices.Collect(maps.Keys(terms)))
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
		if lost := n - v.demoted[namespace]; lost != 0 {
			v.t.Errorf("a guestbook lost its term in %s %d times", namespace, lost)
		}
	}
	v.judge()
	return closest
}

// undecided fails the test unless the records have said all the time that the leaders lead.
func (v *view) undecided() {
	v.t.Helper()
	for _, s := range v.Records.Seen() {
		r := s.Object
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
		for _, w := range musttest.Get(s.Requests())(t) {
			if w.Writes() && strings.Contains(w.Agent, r.identity) && w.Received.After(instant) {
				found = append(found, s.Name()+": "+w.String())
			}
		}
	}
	return found
}

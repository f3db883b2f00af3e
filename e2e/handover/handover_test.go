// Package handover tests planned changes between clusters whose readers acknowledge a revoked term. It runs real API
// servers, a hub process under the RBAC of config/, and guestbooks that register.
package handover

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

const (
	namespace = "shop"
	// patience bounds the wait for something that takes a term at most.
	patience = 90 * time.Second
	// noBound is less than the shortest wait for a term to run out under the default timings, D - r + ε,
	// and more than a loaded machine adds to a handover.
	noBound = 8 * time.Second
	// slack is what such a machine may add to the bound.
	slack = 10 * time.Second
	// h is the duration of the hub's election.
	h = 6 * time.Second
)

// testbed is a drill between east and west, of which one leads.
type testbed struct {
	*harness.Drill
	t      *testing.T
	view   *harness.View
	leader string
	raised int
	before int // changes, when the handover began
}

func newTestbed(t *testing.T) *testbed {
	d := harness.New(t, harness.Options{
		Timings: harness.Default, ActEvery: 20 * time.Millisecond, Register: true,
		Members: []harness.Member{
			{Name: "east", Priority: 100, Namespaces: []string{namespace}},
			{Name: "west", Priority: 50, Namespaces: []string{namespace}},
		},
	})
	s := &testbed{Drill: d, t: t, view: d.LookFor(t), raised: 1000}
	first, err := d.AwaitAct(t.Context(), patience, "the first leader acts", func(harness.Act) bool { return true })
	musttest.Do(t, err)
	s.leader = first.Cluster
	return s
}

func (s *testbed) other() string {
	if s.leader == "east" {
		return "west"
	}
	return "east"
}

// begin raises the other cluster above the leader.
func (s *testbed) begin() {
	musttest.Do(s.t, s.AwaitEligible(s.t.Context(), patience, s.other(), namespace))
	s.before = len(s.changes())
	s.raised++
	musttest.Do(s.t, s.SetPriority(s.t.Context(), s.other(), s.raised))
}

// end waits until the other cluster acts after what begin has begun, checks that no two ever acted together, and
// returns how long nobody acted and when the other one began.
func (s *testbed) end() (gap, began time.Duration) {
	s.t.Helper()
	musttest.Get(s.AwaitAct(s.t.Context(), patience, s.other()+" acts",
		func(harness.Act) bool { return len(s.changes()) > s.before }))(s.t)
	all := s.changes()
	last := all[len(all)-1]
	if last.To != s.other() {
		s.t.Fatalf("%s acts after %s", last.To, last.From)
	}
	s.leader = last.To
	return last.Gap(), last.First
}

func (s *testbed) changes() []harness.Change {
	s.t.Helper()
	acts := musttest.Get(s.Acts())(s.t)
	verdicts := harness.Judge(acts)
	for _, breach := range harness.Breaches(verdicts) {
		s.t.Fatal(breach)
	}
	if len(verdicts) == 0 {
		return nil
	}
	return verdicts[0].Changes
}

// revoked waits until the record and the leader's Lease show that the term is revoked.
func (s *testbed) revoked() {
	musttest.Do(s.t, s.Await(s.t.Context(), patience, "the term is revoked", func(ctx context.Context) error {
		if r := must.Get(s.Record(ctx, namespace)); r.Spec.State != v1alpha1.StateEnding || r.Spec.RevokedEpoch == 0 {
			return fmt.Errorf("state %s, revoked epoch %d: %s", r.Spec.State, r.Spec.RevokedEpoch, r.Status.Message)
		}
		seen := s.view.Leases[s.leader].Seen()
		if l := seen[len(seen)-1].Object; *l.Spec.HolderIdentity != "" {
			return errors.New("the Lease names " + *l.Spec.HolderIdentity)
		}
		return nil
	}))
}

// ranOut fails the test unless the next term began when the last stamp of the old leader had run out, and soon after.
func (s *testbed) ranOut(old string, began, more time.Duration) {
	s.t.Helper()
	stamp, ok := harness.LastRenewTime(s.view.Leases[old].Seen(), namespace, began)
	if !ok {
		s.t.Fatalf("no Lease let %s act", old)
	}
	bound := s.Timings.Duration + s.Timings.Skew
	if waited := began - stamp; waited < bound || waited > bound+more+slack {
		s.t.Errorf("%s began %v after the last stamp of %s, want between %v and %v", s.leader, waited, old, bound,
			bound+more+slack)
	}
}

func TestHandover(t *testing.T) {
	s := newTestbed(t)
	run := func(name string, f func(*testbed)) bool {
		return t.Run(name, func(t *testing.T) {
			s.t = t
			f(s)
		})
	}
	for _, test := range []struct {
		name string
		do   func(*testbed)
	}{
		{"a planned change needs no term to run out", func(s *testbed) {
			for range 6 {
				s.begin()
				gap, _ := s.end()
				s.t.Logf("nobody acted for %v", gap)
				if gap > noBound {
					s.t.Errorf("nobody acted for %v", gap)
				}
			}
		}},
		{"a hub that dies when it has told the leader to stop leaves the rest to the term", func(s *testbed) {
			old := s.leader
			book := s.Guestbook(old)
			musttest.Do(s.t, book.Pause())
			s.begin()
			s.revoked()
			hubs := s.Hubs()
			musttest.Do(s.t, hubs[len(hubs)-1].Kill())
			musttest.Do(s.t, book.Resume())
			musttest.Get(s.StartHub())(s.t)
			_, began := s.end()
			s.ranOut(old, began, 2*h)
		}},
		{"a reader that died costs what is left of the term, and no more", func(s *testbed) {
			old := s.leader
			musttest.Do(s.t, s.Guestbook(old).Kill())
			s.begin()
			_, began := s.end()
			s.ranOut(old, began, 0)
		}},
	} {
		if !run(test.name, test.do) {
			break
		}
	}
}

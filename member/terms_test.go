package member_test

import (
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/member"
)

const ns = "shop"

// Each case ends by asking whether the cluster leads. Most come in pairs that lie
// on the two sides of one rule.
func TestWhoLeads(t *testing.T) {
	cases := map[string]struct {
		happens func(c *cluster)
		leads   bool
	}{
		"a Lease that names this cluster lets it lead": {
			func(c *cluster) { c.write(ns, us, 7) }, true},
		"a Lease that names another cluster does not": {
			func(c *cluster) { c.write(ns, them, 7) }, false},
		"a Lease that names nobody does not": {
			func(c *cluster) { c.write(ns, none, 7) }, false},
		"no Lease means no": {
			func(*cluster) {}, false},
		"the Lease of another namespace means nothing here": {
			func(c *cluster) { c.write("other", us, 7) }, false},
		"a deleted Lease means no": {
			func(c *cluster) { c.write(ns, us, 7); c.Delete(ns, v1alpha1.DefaultLeaseName) }, false},
		"deleting some other Lease means nothing": {
			func(c *cluster) { c.write(ns, us, 7); c.Delete(ns, "other") }, true},
		"not even after an edit that was not believed": {
			func(c *cluster) { c.write(ns, us, 7); c.write(ns, them, 6); c.Delete(ns, "other") }, true},
		"a Lease that lost its label counts as deleted": {
			func(c *cluster) { l := c.write(ns, us, 7); delete(l.Labels, v1alpha1.ManagedLabel); c.Observe(l) }, false},
		"a Lease without a cluster annotation names nobody": {
			func(c *cluster) {
				l := c.leaseOf(ns, us, 7)
				delete(l.Annotations, v1alpha1.ClusterAnnotation)
				c.Observe(l)
			}, false},
		"a Lease without a spec permits nothing": {
			func(c *cluster) { l := c.leaseOf(ns, us, 7); l.Spec = coordinationv1.LeaseSpec{}; c.Observe(l) }, false},
		"a revocation ends the term": {
			func(c *cluster) { c.write(ns, us, 7); c.write(ns, none, 8) }, false},
		"the term stands until its deadline": {
			func(c *cluster) { c.write(ns, us, 7); pass(duration - time.Microsecond) }, true},
		"and not at its deadline": {
			func(c *cluster) { c.write(ns, us, 7); pass(duration) }, false},
		"a renewal moves the deadline": {
			func(c *cluster) {
				c.write(ns, us, 7)
				pass(duration - time.Microsecond)
				c.write(ns, us, 7)
				pass(duration - time.Microsecond)
			}, true},
		"a Lease seen late lasts no longer for it": {
			func(c *cluster) {
				l := c.leaseOf(ns, us, 7)
				pass(duration - time.Microsecond)
				c.Observe(l)
				pass(time.Microsecond)
			}, false},
		"a Lease seen after its deadline permits nothing": {
			func(c *cluster) { l := c.leaseOf(ns, us, 7); pass(duration); c.Observe(l) }, false},

		"a renewTime as far in the future as clocks may differ is believed": {
			func(c *cluster) { c.clock.Step(skew); l := c.leaseOf(ns, us, 7); c.clock.Step(-skew); c.Observe(l) }, true},
		"a renewTime further in the future is not": {
			func(c *cluster) {
				c.clock.Step(skew + 1000)
				l := c.leaseOf(ns, us, 7)
				c.clock.Step(-skew - 1000)
				c.Observe(l)
			}, false},
		"a fallen epoch is not believed": {
			func(c *cluster) { c.write(ns, them, 7); c.write(ns, us, 6) }, false},
		"nor does it end a term": {
			func(c *cluster) { c.write(ns, us, 7); c.write(ns, them, 6) }, true},
		"the epoch survives the Lease": {
			func(c *cluster) { c.write(ns, them, 7); c.Delete(ns, v1alpha1.DefaultLeaseName); c.write(ns, us, 6) }, false},
		"an absurd epoch is not believed": {
			func(c *cluster) { c.write(ns, us, 1<<30) }, false},

		"a wall clock that jumps past the deadline ends the term": {
			func(c *cluster) { c.write(ns, us, 7); c.clock.Step(duration) }, false},
		"a wall clock that is stepped back extends nothing": {
			func(c *cluster) { c.write(ns, us, 7); c.clock.Step(-time.Hour); pass(duration) }, false},
		"nor does the same Lease delivered again after the step": {
			func(c *cluster) {
				l := c.write(ns, us, 7)
				c.clock.Step(-time.Hour)
				c.Observe(l)
				pass(duration)
			}, false},
		"nor in a list": {
			func(c *cluster) {
				l := c.write(ns, us, 7)
				c.clock.Step(-time.Hour)
				c.Replace("", []coordinationv1.Lease{*l})
				pass(duration)
			}, false},
		"a renewal that is seen after the step extends nothing either": {
			func(c *cluster) { c.renewAfterStep(-time.Hour); pass(duration / 2) }, false},
		"but does not end the term": {
			func(c *cluster) { c.renewAfterStep(-time.Hour); pass(duration/2 - time.Microsecond) }, true},
		"a renewal that is seen after a jump ahead permits as much less": {
			func(c *cluster) { c.renewAfterStep(duration / 4); pass(duration * 3 / 4) }, false},
		"and no less than that": {
			func(c *cluster) { c.renewAfterStep(duration / 4); pass(duration*3/4 - time.Microsecond) }, true},
		"time spent in suspend counts": {
			func(c *cluster) { c.write(ns, us, 7); c.clock.Suspend(duration) }, false},
		"also if the wall clock slept through it": {
			func(c *cluster) { c.write(ns, us, 7); c.clock.Suspend(duration); c.clock.Step(-duration) }, false},

		"a list that holds the Lease leaves the term": {
			func(c *cluster) { l := c.write(ns, us, 7); c.Replace("", []coordinationv1.Lease{*l}) }, true},
		"a list that lacks the Lease ends the term": {
			func(c *cluster) { c.write(ns, us, 7); c.Replace("", nil) }, false},
		"also beside the Leases of many namespaces": {
			func(c *cluster) { c.writeMany(); c.write(ns, us, 7); c.Replace("", nil) }, false},
		"also a list of its namespace beside many": {
			func(c *cluster) { c.writeMany(); c.write(ns, us, 7); c.Replace(ns, nil) }, false},
		"also a list of its namespace": {
			func(c *cluster) { c.write(ns, us, 7); c.Replace(ns, nil) }, false},
		"but not a list of another namespace": {
			func(c *cluster) { c.write(ns, us, 7); c.Replace("other", nil) }, true},

		"of two Leases the higher epoch decides, seen last": {
			func(c *cluster) { c.write(ns, us, 7); c.Observe(renamed(c.leaseOf(ns, them, 8))) }, false},
		"of two Leases the higher epoch decides, seen first": {
			func(c *cluster) { c.Observe(renamed(c.leaseOf(ns, them, 8))); c.write(ns, us, 7) }, false},
		"deleting the Lease of the old name leaves the term of the new": {
			func(c *cluster) {
				c.write(ns, us, 7)
				c.Observe(renamed(c.leaseOf(ns, us, 7)))
				c.Delete(ns, v1alpha1.DefaultLeaseName)
			}, true},
		"deleting the Lease that leads does not fall back to an older one": {
			func(c *cluster) {
				c.write(ns, us, 7)
				c.Observe(renamed(c.leaseOf(ns, us, 8)))
				c.Delete(ns, "new")
			}, false},
		"deleting one Lease and stepping the clock back extends nothing": {
			func(c *cluster) {
				c.write(ns, us, 7)
				c.Observe(renamed(c.leaseOf(ns, us, 7)))
				c.clock.Step(-time.Hour)
				c.Delete(ns, "new")
				pass(duration)
			}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				tc.happens(c)
				if got := c.leads(); got != tc.leads {
					t.Errorf("leads = %v, want %v", got, tc.leads)
				}
			})
		})
	}
}

// writeMany lets the cluster lead in many namespaces.
func (c *cluster) writeMany() {
	c.t.Helper()
	for i := range 50 {
		c.write(name(i), us, 7)
	}
}

func TestTermStaysTheSameThroughRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.write(ns, us, 7)
		first, _ := c.Term(ns)
		pass(5 * time.Second)
		if got, want := first.Remaining(), duration-5*time.Second; got != want {
			t.Errorf("Remaining = %v before the renewal, want %v", got, want)
		}
		c.write(ns, us, 7)
		if got := first.Remaining(); got != duration {
			t.Errorf("Remaining = %v after the renewal, want %v", got, duration)
		}
		if second, _ := c.Term(ns); second != first || second.Epoch() != 7 {
			t.Errorf("the renewed term is another one, or has epoch %d, want the same with 7", second.Epoch())
		}
		c.write(ns, us, 8)
		if next, _ := c.Term(ns); next == first || next.Epoch() != 8 {
			t.Errorf("a term with another epoch is the same one, or has epoch %d, want another with 8", next.Epoch())
		}
		if first.Holds() || first.Remaining() != 0 {
			t.Errorf("the first term still holds, for %v", first.Remaining())
		}
	})
}

func TestTermThatRanOutIsNotRevived(t *testing.T) {
	cases := map[string]func(c *cluster){
		"by a late renewal":                       func(*cluster) { pass(duration) },
		"by a late renewal after somebody saw it": func(c *cluster) { pass(duration); c.leads() },
		"when the wall clock goes back and forth": func(c *cluster) {
			c.clock.Step(duration)
			c.leads()
			c.clock.Step(-duration)
		},
		"when it is renewed in the same instant": func(c *cluster) { c.clock.Suspend(duration) },
		"when the Lease was away":                func(c *cluster) { c.Delete(ns, v1alpha1.DefaultLeaseName) },
		"when a context was refused because of it": func(c *cluster) {
			c.clock.Step(duration)
			c.noContext()
			c.clock.Step(-duration)
		},
	}
	for name, happens := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				c.write(ns, us, 7)
				first, _ := c.Term(ns)
				happens(c)
				c.write(ns, us, 7)
				second, ok := c.Term(ns)
				if !ok || second == first || first.Holds() {
					t.Errorf("after the renewal: leads = %v, in the same term = %v, which holds = %v; want another term",
						ok, second == first, first.Holds())
				}
			})
		})
	}
}

// renewAfterStep lets a term begin, and sees its renewal half a duration later, when the wall clock
// has just been stepped.
func (c *cluster) renewAfterStep(step time.Duration) {
	c.write(ns, us, 7)
	pass(duration / 2)
	l := c.leaseOf(ns, us, 7)
	c.clock.Step(step)
	c.Observe(l)
}

func (c *cluster) noContext() {
	c.t.Helper()
	if _, cancel, err := c.Context(c.t.Context(), ns); err == nil {
		cancel()
		c.t.Error("got a context, want none")
	}
}

func TestZeroTermNeverHolds(t *testing.T) {
	var zero member.Term
	if zero.Holds() || zero.Remaining() != 0 || zero.Epoch() != 0 {
		t.Errorf("the zero Term holds = %v, remaining %v, epoch %d", zero.Holds(), zero.Remaining(), zero.Epoch())
	}
}

// FuzzObserve checks that whatever a Lease says, this cluster leads only where the
// naive rule that protocol readers in other languages use agrees, however often
// and in whatever state of the clock it is seen.
func FuzzObserve(f *testing.F) {
	f.Add(us, us, int32(7), int32(15), int64(0), int64(0), "true")
	f.Add(us, them, int32(7), int32(15), int64(0), int64(0), "true")
	f.Add(us, us, int32(-1), int32(-15), int64(time.Hour), int64(-time.Hour), "true")
	f.Add("", "", int32(1<<30), int32(1<<30), int64(-time.Hour), int64(time.Hour), "")
	f.Fuzz(func(t *testing.T, cluster, holder string, epoch, seconds int32, renewedAgo, stepped int64, label string) {
		c := newCluster(t)
		l := c.leaseOf(ns, holder, 1)
		l.Labels[v1alpha1.ManagedLabel] = label
		l.Annotations[v1alpha1.ClusterAnnotation] = cluster
		l.Spec.LeaseTransitions, l.Spec.LeaseDurationSeconds = &epoch, &seconds
		l.Spec.RenewTime.Time = l.Spec.RenewTime.Add(-time.Duration(renewedAgo))
		for range 2 {
			c.Observe(l)
			now := c.clock.Now().Wall
			says, _ := wire.Read(l)
			naive := holder != "" && holder == cluster && now.Before(says.Deadline())
			if term, ok := c.Term(ns); ok &&
				(!naive || term.Remaining() > says.Deadline().Sub(now) || !lease.PlausibleEpoch(now, term.Epoch())) {
				t.Fatalf("leads in epoch %d for %v where the Lease says %+v at %v", term.Epoch(), term.Remaining(), says, now)
			}
			c.clock.Step(time.Duration(stepped))
		}
	})
}

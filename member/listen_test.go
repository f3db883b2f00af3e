package member_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/member"
)

// calls notes what a listener is told.
type calls struct {
	mu   sync.Mutex
	made []string
}

func (c *calls) listener() member.Listener {
	return member.Listener{
		Promoted: func(ns string, t member.Term) { c.add(fmt.Sprintf("%s promoted in %d", ns, t.Epoch())) },
		Demoted: func(ns string, reason error) {
			if errors.Is(reason, member.ErrNotLeader) {
				c.add(ns + " does not lead")
			} else if errors.Is(reason, member.ErrLost) {
				c.add(ns + " demoted")
			} else {
				c.add(fmt.Sprintf("%s demoted for no known reason: %v", ns, reason))
			}
		},
	}
}

func (c *calls) add(s string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made = append(c.made, s)
}

// take returns the calls since the last take, when all that are due have been made.
func (c *calls) take() []string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	made := c.made
	c.made = nil
	return made
}

func (c *calls) expect(t *testing.T, when string, want ...string) {
	t.Helper()
	if got := c.take(); !slices.Equal(got, want) {
		t.Errorf("%s: calls %q, want %q", when, got, want)
	}
}

func TestListenersHearOfEveryChangeInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, heard := newCluster(t), &calls{}
		defer c.Listen(heard.listener())()
		heard.expect(t, "nothing known")
		c.Replace("empty", nil)
		heard.expect(t, "a namespace without a Lease is listed", "empty does not lead")
		c.Replace("empty", nil)
		heard.expect(t, "and listed again")
		c.write(ns, them, 1)
		heard.expect(t, "first seen as a follower", "shop does not lead")
		c.write(ns, none, 2)
		heard.expect(t, "still a follower")
		late := c.leaseOf(ns, us, 3)
		pass(duration)
		c.Observe(late)
		heard.expect(t, "a Lease that has run out is seen")
		c.write(ns, us, 3)
		heard.expect(t, "promoted", "shop promoted in 3")
		c.write(ns, us, 3)
		heard.expect(t, "renewed")
		c.write(ns, us, 4)
		heard.expect(t, "a new term follows", "shop demoted", "shop promoted in 4")
		c.Delete(ns, v1alpha1.DefaultLeaseName)
		heard.expect(t, "deleted", "shop demoted")
		c.write(ns, us, 5)
		heard.expect(t, "back", "shop promoted in 5")
		pass(duration)
		heard.expect(t, "ran out", "shop demoted")
		c.write(ns, us, 5)
		heard.expect(t, "renewed too late", "shop promoted in 5")
	})
}

func TestListenersHearFirstWhereThingsStand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, heard := newCluster(t), &calls{}
		c.write("led", us, 7)
		c.write("followed", them, 7)
		c.write("lost", us, 7)
		c.write("lost", them, 8)
		c.Replace("empty", nil)
		defer c.Listen(heard.listener())()
		got := heard.take()
		slices.Sort(got)
		want := []string{"empty does not lead", "followed does not lead", "led promoted in 7", "lost does not lead"}
		if !slices.Equal(got, want) {
			t.Errorf("calls %q, want %q", got, want)
		}
	})
}

func TestListenersHearNothingAfterTheirRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, heard, other := newCluster(t), &calls{}, &calls{}
		remove := c.Listen(heard.listener())
		defer c.Listen(other.listener())()
		c.write(ns, us, 7)
		heard.expect(t, "before", "shop promoted in 7")
		other.expect(t, "before", "shop promoted in 7")
		remove()
		remove() // again does no harm
		c.write(ns, them, 8)
		heard.expect(t, "after")
		other.expect(t, "another one was removed", "shop demoted")
	})
}

func TestListenerMayRemoveItselfAndAskBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, heard := newCluster(t), &calls{}
		var remove func()
		c.write(ns, them, 6)
		remove = c.Listen(member.Listener{Promoted: func(ns string, told member.Term) {
			term, ok := c.Term(ns)
			ctx, cancel, err := c.Context(t.Context(), ns)
			if err != nil {
				t.Error(err)
				return
			}
			defer cancel()
			epoch, _ := member.EpochFrom(ctx)
			heard.add(fmt.Sprintf("%v %v %d", ok, term == told, epoch))
			remove()
		}})
		c.write(ns, us, 7)
		heard.expect(t, "in the call", "true true 7")
		c.write(ns, us, 8)
		heard.expect(t, "after it removed itself")
	})
}

// By the time that a listener hears of a loss, work has been told to stop.
func TestDemotedComesAfterContextsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, heard := newCluster(t), &calls{}
		c.write(ns, us, 7)
		ctx, cancel := c.context(ns)
		defer cancel()
		defer c.Listen(member.Listener{Demoted: func(string, error) {
			heard.add(fmt.Sprint(context.Cause(ctx) != nil, c.leads()))
		}})()
		c.write(ns, them, 8)
		heard.expect(t, "demoted", "true false")
	})
}

func TestSlowListenerHoldsUpNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, slow, quick := newCluster(t), &calls{}, &calls{}
		release := make(chan struct{})
		l := slow.listener()
		promoted := l.Promoted
		l.Promoted = func(name string, term member.Term) {
			promoted(name, term)
			if name == ns {
				<-release
			}
		}
		defer c.Listen(l)()
		defer c.Listen(quick.listener())()

		c.write(ns, us, 1)
		slow.expect(t, "the slow one is called", "shop promoted in 1")
		c.write("other", us, 1)
		slow.expect(t, "meanwhile, about another namespace", "other promoted in 1")
		quick.take()
		c.write(ns, them, 2)
		quick.expect(t, "meanwhile, another listener", "shop demoted")
		if c.leads() {
			t.Error("the check waits for a listener")
		}
		c.write(ns, us, 3)
		c.write(ns, them, 4)
		c.write(ns, us, 5)
		slow.expect(t, "meanwhile, about its own namespace")
		close(release)
		slow.expect(t, "terms that came and went are left out", "shop demoted", "shop promoted in 5")
	})
}

func TestBusyListenerHearsNothingAfterItsRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, heard := newCluster(t), &calls{}
		release := make(chan struct{})
		l := heard.listener()
		promoted := l.Promoted
		l.Promoted = func(name string, term member.Term) { promoted(name, term); <-release }
		remove := c.Listen(l)
		c.write(ns, us, 7)
		heard.expect(t, "it is called", "shop promoted in 7")
		c.write(ns, them, 8)
		remove()
		close(release)
		heard.expect(t, "it was removed meanwhile")
	})
}

// However late a listener hears of a loss, it hears why it happened.
func TestReasonOfALossStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, heard := newCluster(t), &calls{}
		release := make(chan struct{})
		defer c.Listen(member.Listener{
			Promoted: func(string, member.Term) { <-release },
			Demoted:  func(_ string, reason error) { heard.add(reason.Error()) },
		})()
		c.write("other", us, 1) // keeps the clock being looked at
		c.write(ns, us, 7)
		synctest.Wait()
		c.write(ns, them, 8)
		pass(10 * recheck)
		close(release)
		heard.expect(t, "late", "the term is over: namespace shop, epoch 7: west.fleet leads in epoch 8")
	})
}

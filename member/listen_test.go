package member_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/leasecast/leasecast/member"
)

// calls records the calls to listeners.
type calls struct {
	mu   sync.Mutex
	made []string
}

func (c *calls) listener() member.Listener {
	return member.Listener{
		Promoted: func(ns string, t member.Term) { c.add(fmt.Sprintf("%s promoted in %d", ns, t.Epoch())) },
		Demoted: func(ns string, reason error) {
			switch {
			case errors.Is(reason, member.ErrNotLeader):
				c.add(ns + " does not lead")
			case errors.Is(reason, member.ErrLost):
				c.add(ns + " demoted")
			default:
				c.add(fmt.Sprintf("%s demoted for an unknown reason: %v", ns, reason))
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
func (c *calls) take() (made []string) {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	made, c.made = c.made, nil
	return made
}

func (c *calls) expect(t *testing.T, when string, want ...string) {
	t.Helper()
	if got := c.take(); !slices.Equal(got, want) {
		t.Errorf("%s: calls %q, want %q", when, got, want)
	}
}

func TestListener_IsNotifiedOfEveryChangeInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, made := newTestTerms(t), &calls{}
		defer c.Listen(made.listener())()
		made.expect(t, "no namespace is known")
		for _, step := range []struct {
			when    string
			happens func()
			want    []string
		}{
			{"a namespace without a Lease is listed", func() { c.Replace("empty", nil) }, []string{"empty does not lead"}},
			{"and listed again", func() { c.Replace("empty", nil) }, nil},
			{"first seen as a follower", func() { c.write(ns, them, 1) }, []string{"shop does not lead"}},
			{"still a follower", func() { c.write(ns, none, 2) }, nil},
			{"a Lease that has run out is seen", func() { c.write(ns, us, 3, ahead(-duration)) }, nil},
			{"promoted", func() { c.write(ns, us, 3) }, []string{"shop promoted in 3"}},
			{"renewed", func() { c.write(ns, us, 3) }, nil},
			{"a new term follows", func() { c.write(ns, us, 4) }, []string{"shop demoted", "shop promoted in 4"}},
			{"deleted", func() { c.Delete(ns, leaseName) }, []string{"shop demoted"}},
			{"back", func() { c.write(ns, us, 5) }, []string{"shop promoted in 5"}},
			{"ran out", func() { pass(duration) }, []string{"shop demoted"}},
			{"renewed too late", func() { c.write(ns, us, 5) }, []string{"shop promoted in 5"}},
		} {
			step.happens()
			made.expect(t, step.when, step.want...)
		}
		c.write("followed", them, 1)
		late := &calls{}
		defer c.Listen(late.listener())()
		current := slices.Sorted(slices.Values(late.take()))
		want := []string{"empty does not lead", "followed does not lead", "shop promoted in 5"}
		if !slices.Equal(current, want) {
			t.Errorf("calls of a late listener %q, want %q", current, want)
		}
	})
}

// A busy listener returns from Promoted when it is released.
func busy(l member.Listener) (slow member.Listener, release func()) {
	released := make(chan struct{})
	promoted := l.Promoted
	l.Promoted = func(name string, term member.Term) {
		promoted(name, term)
		if name == ns {
			<-released
		}
	}
	return l, func() { close(released) }
}

func TestListener_IsNotNotifiedAfterItsRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, made, busyMade, other, own := newTestTerms(t), &calls{}, &calls{}, &calls{}, &calls{}
		slow, release := busy(busyMade.listener())
		remove, removeSlow := c.Listen(made.listener()), c.Listen(slow)
		defer c.Listen(other.listener())()
		removes := make(chan func(), 1)
		removes <- c.Listen(member.Listener{Promoted: func(name string, term member.Term) { // removes itself
			now, ok := c.Term(name)
			ctx, done := contextOf(t, c, name)
			defer done()
			epoch, _ := member.EpochFrom(ctx)
			own.add(fmt.Sprint(ok, now == term, epoch))
			(<-removes)()
		}})
		c.write(ns, us, 7)
		for _, l := range []*calls{made, busyMade, other} {
			l.expect(t, "before", "shop promoted in 7")
		}
		own.expect(t, "in the call", "true true 7")
		remove()
		remove() // again does no harm
		removeSlow()
		c.write(ns, us, 8)
		release()
		made.expect(t, "after")
		busyMade.expect(t, "after, and it was busy")
		own.expect(t, "after it removed itself")
		other.expect(t, "others were removed", "shop demoted", "shop promoted in 8")
	})
}

func TestListener_ThatIsBusyDelaysOnlyItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, slow, quick := newTestTerms(t), &calls{}, &calls{}
		l, release := busy(slow.listener())
		defer c.Listen(l)()
		defer c.Listen(quick.listener())()
		c.write(ns, us, 1)
		slow.expect(t, "the slow one is called", "shop promoted in 1")
		c.write("other", us, 1)
		slow.expect(t, "in the meantime, for another namespace", "other promoted in 1")
		quick.take()
		c.write(ns, them, 2)
		quick.expect(t, "in the meantime, another listener", "shop demoted")
		if c.leads() {
			t.Error("the check waits for a listener")
		}
		c.write(ns, us, 3)
		c.write(ns, them, 4)
		c.write(ns, us, 5)
		slow.expect(t, "in the meantime, for its own namespace")
		release()
		slow.expect(t, "terms that came and went are left out", "shop demoted", "shop promoted in 5")
	})
}

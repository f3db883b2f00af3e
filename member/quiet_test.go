package member_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasecast/leasecast/member"
)

const doesNotLead = `"msg"="This cluster does not lead"`

// Nobody renews the Lease of a follower, so its age says nothing.
func TestALateLeaseOfAFollowerIsNoTrouble(t *testing.T) {
	for holder, want := range map[string]int{us: 1, them: 0, none: 0} {
		telling(t, member.Options{}, func(t *testing.T, r *reader, l *logged) {
			late := r.cluster.leaseOf(ns, holder, 7)
			pass(duration - time.Second)
			r.put(late)
			l.expect(t, "held by "+holder, want, "old on arrival")
		})
	}
}

func TestALeaderThatLeadsOnInAnotherEpochIsTold(t *testing.T) {
	telling(t, member.Options{}, func(t *testing.T, r *reader, l *logged) {
		r.put(r.cluster.leaseOf(ns, them, 7))
		l.expect(t, "in one epoch", 1, doesNotLead, `"leader"="west.fleet" "epoch"=7`)
		r.put(r.cluster.leaseOf(ns, them, 8))
		l.expect(t, "in another", 1, doesNotLead, `"leader"="west.fleet" "epoch"=8`)
	})
}

func TestWhoDoesNotLeadForADoubtIsToldByThatDoubtAlone(t *testing.T) {
	telling(t, member.Options{}, func(t *testing.T, r *reader, l *logged) {
		edited := r.cluster.leaseOf(ns, us, 7)
		edited.Spec.RenewTime = nil
		r.put(edited)
		l.expect(t, "an impossible Lease", 1, "has no renewTime: not believed")
		l.expect(t, "and nothing else", 0, "lead")
	})
}

func TestNothingIsToldOfANamespaceWithoutAName(t *testing.T) {
	telling(t, member.Options{}, func(t *testing.T, r *reader, l *logged) {
		r.put(r.cluster.leaseOf(ns, them, 7))
		synctest.Wait()
		before := len(l.with())
		if _, _, err := r.Context(t.Context(), ""); err == nil {
			t.Error("it leads there")
		}
		pass(staleAfter)
		l.expect(t, "asked for", before)
	})
}

func TestATroubleWithOneNamespaceIsNoneWithAnother(t *testing.T) {
	telling(t, member.Options{Namespaces: []string{"ledger", ns, "zoo"}}, func(t *testing.T, r *reader, _ *logged) {
		r.say(ns, us, 7)
		r.keepFrom("ledger")
		pass(staleAfter)
		if s := r.State(ns); s.Trouble != "" {
			t.Errorf("of the one that is followed, State says %q", s.Trouble)
		}
		if s := r.State("ledger"); !strings.Contains(s.Trouble, bindReader) {
			t.Errorf("of the other, State says %q", s.Trouble)
		}
	})
}

func TestWaitForSyncSaysWhatIsWrongIfAnythingIs(t *testing.T) {
	for name, tc := range map[string]struct {
		m       mode
		started bool
		want    string
	}{
		"nothing is":        {hangs, true, "the Leases of namespace shop have not been listed yet: context deadline exceeded"},
		"rights are":        {refuses, true, "the Leases of namespace shop have not been listed yet: " + bindReader + ": list leases: "},
		"it is not started": {hangs, false, "the Member is not started: add it to the manager by mgr.Add, or call Start: context deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReader(t, ns)
				r.become(tc.m)
				if tc.started {
					defer r.start(t)()
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := r.WaitForSync(ctx); err == nil || !strings.HasPrefix(err.Error(), "member: "+tc.want) {
					t.Errorf("err = %v, want %s", err, tc.want)
				}
			})
		})
	}
}

func TestAWatchThatEndsWithAnErrorIsATroubleThatIsToldOnce(t *testing.T) {
	telling(t, member.Options{}, func(t *testing.T, r *reader, l *logged) {
		pass(5 * time.Second)
		before := r.asks()
		r.fail()
		synctest.Wait()
		if asks := r.asks() - before; asks > 0 {
			t.Errorf("%d requests at once, want a pause", asks)
		}
		pass(5 * time.Second)
		l.expect(t, "an error", 1, "Cannot follow leases", `"reason"="watch leases: `)
		l.expect(t, "and a watch after it", 1, "Follows leases again")
	})
}

// What a Member has given up itself is no failure.
func TestAListThatEndsWithItsRegistrationIsNoTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &logged{}
		r := newReaderWith(t, member.Options{Registration: registration(t), Logger: l.logger()})
		r.delay(time.Minute) // of lists
		defer r.start(t)()
		pass(time.Second)
		r.do(&write{method: http.MethodDelete, namespace: home, name: r.registered()[0].Name})
		pass(confirm)
		l.expect(t, "it is lost", 1, "Registers anew")
		pass(time.Second)
		l.expect(t, "its list was given up", 0, "Cannot")
		if s := r.State(ns); s.Trouble != "" {
			t.Errorf("State says %q", s.Trouble)
		}
	})
}

func TestNoOutageIsToldAfterTheEndOfAMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &logged{}
		r := newReaderWith(t, member.Options{Namespaces: []string{ns, "ledger"}, Logger: l.logger()})
		r.become(refuses)
		stop := r.start(t)
		pass(time.Second / 2)
		stop()
		before := len(l.with())
		pass(time.Minute)
		l.expect(t, "stopped", before)
		l.expect(t, "stopped", 0, "Cannot")
	})
}

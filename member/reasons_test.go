package member_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/member"
)

const (
	bindReader = "bind leasecast-reader (config/reader) to the account of this program " +
		"in each of its Options.Namespaces, " +
		"or by a ClusterRoleBinding if it follows all, or more than 16"
	bindRegistration = "bind leasecast-registration (config/reader) to the account of this program " +
		"in the namespace of its registration"
)

// saysWhy fails the test unless State and the error of Context give this reason.
func (r *reader) saysWhy(t *testing.T, when string, texts ...string) {
	t.Helper()
	synctest.Wait()
	_, _, err := r.Context(t.Context(), ns)
	var no *member.NotLeaderError
	if !errors.As(err, &no) || !errors.Is(err, member.ErrNotLeader) {
		t.Fatalf("%s: err = %v", when, err)
	}
	s := r.State(ns)
	for _, text := range texts {
		if !strings.Contains(s.Why, text) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: State says %q, Context says %q, want %q", when, s.Why, err, text)
		}
	}
	if s.Leads || !strings.Contains(s.Why, s.Trouble) || s.Why != no.Why {
		t.Errorf("%s: State = %+v, error %+v", when, s, no)
	}
}

func TestStateSaysWhatKeepsNewsFromComing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReader(t, ns)
		r.become(refuses)
		defer r.start(t)()
		r.saysWhy(t, "no rights at the start", "the Leases of namespace shop have not been listed yet: "+bindReader)
		// Lists are tried again after a time that is drawn.
		until := func(refused bool) {
			for range int(staleAfter / time.Second) {
				if s := r.State(ns); strings.Contains(s.Why+s.Trouble, bindReader) == refused && (refused || s.Trouble == "") {
					return
				}
				pass(time.Second)
			}
		}
		follows := func() { r.become(answers); until(false) }
		refused := func() { r.become(refuses); r.fail(); until(true) }
		r.put(r.cluster.leaseOf(ns, us, 1))
		follows()
		if s := r.State(ns); !s.Leads || s.Why != "" || s.Trouble != "" {
			t.Errorf("with rights: %+v", s)
		}
		refused()
		if s := r.State(ns); !s.Leads || s.Why != "" || !strings.HasPrefix(s.Trouble, bindReader) {
			t.Errorf("without them again, and in its term: %+v", s)
		}
		pass(duration)
		r.saysWhy(t, "after its term", "it ran out: the last Lease was ",
			" s old on arrival, and lasts 15 s; its Leases cannot be followed: "+bindReader)
		r.put(r.cluster.leaseOf(ns, them, 2))
		follows()
		refused()
		r.saysWhy(t, "a follower", "west.fleet leads in epoch 2; its Leases cannot be followed: "+bindReader)
		follows()
		r.remove(ns, v1alpha1.DefaultLeaseName)
		pass(time.Second)
		refused()
		r.saysWhy(t, "without a Lease", "its Lease is gone; its Leases cannot be followed: "+bindReader)
		r.become(hangs)
		pass(staleAfter)
		r.saysWhy(t, "without an answer",
			"its Lease is gone; its Leases cannot be followed: the API server does not answer, check the way to it")
	})
}

func TestAStoppedMemberHasNoTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReader(t, ns)
		r.become(refuses)
		stop := r.start(t)
		r.saysWhy(t, "while it follows", bindReader)
		stop()
		if s := r.State(ns); s.Why != member.ErrStopped.Error() || s.Trouble != "" {
			t.Errorf("State = %+v", s)
		}
	})
}

// The machine slept: whoever asks before anything else has noticed gets the truth.
func TestStateKnowsTheEndOfATermAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.write(ns, us, 7)
		c.clock.Suspend(duration)
		if s := c.State(ns); s.Leads || !strings.HasPrefix(s.Why, "it ran out") {
			t.Errorf("State = %+v", s)
		}
	})
}

func TestStateSaysThatTheRegistrationIsTheTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistered(t, ns)
		r.say(ns, us, 7)
		r.meet(forbidden)
		defer r.start(t)()
		r.saysWhy(t, "no rights at the start", "its registration in namespace home has not been made yet: "+bindRegistration)
		r.meet(stored)
		pass(5 * time.Second)
		if s := r.State(ns); !s.Leads || s.Why != "" {
			t.Fatalf("with rights: %+v", s)
		}
		r.meet(forbidden)
		pass(lasts)
		for range 10 { // it is lost, and made anew in vain
			r.saysWhy(t, "without them again", "its registration in namespace home was not confirmed in time: "+bindRegistration)
			pass(time.Second)
		}
		r.meet(stored)
		r.delay(1500 * time.Millisecond)
		for !strings.Contains(r.State(ns).Why, "not been listed yet") {
			pass(100 * time.Millisecond)
		}
		pass(2 * time.Second)
		if s := r.State(ns); !s.Leads {
			t.Errorf("with rights again: %+v", s)
		}
		r.delay(0)
	})
}

func TestAConfirmationThatFailsIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &logged{}
		r := newReaderWith(t, member.Options{Registration: registration(t), Logger: l.logger()})
		r.say(ns, us, 7)
		defer r.start(t)()
		pass(time.Second)
		r.meet(forbidden)
		pass(confirm)
		l.expect(t, "in its term", 1, "Cannot register, or confirm the registration: "+bindRegistration)
		r.meet(stored)
		pass(confirm)
		l.expect(t, "mended", 1, "Confirms the registration again")
	})
}

// What is wrong with the way to an API server has a cause, and something that can be done about it.
func TestAFailureSaysWhatToDo(t *testing.T) {
	for name, tc := range map[string]struct {
		m    mode
		want string
	}{
		"nobody listens": {
			m:    broken,
			want: "the API server cannot be reached, check the address of the API server and the way to it: list leases: ",
		},
		"nobody answers": {hangs, "the API server does not answer, check the way to it: list leases: "},
		"another kind of server": {
			m:    missing,
			want: "what answers at this address has no Leases, check the address of the API server: list leases: ",
		},
		"wrong credentials": {
			m:    strangers,
			want: "the API server does not accept the credentials of this program: list leases: ",
		},
		"no rights": {refuses, bindReader + ": list leases: "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReader(t, ns)
				r.become(tc.m)
				defer r.start(t)()
				pass(staleAfter + time.Second)
				r.saysWhy(t, name, "have not been listed yet: "+tc.want)
				if err := r.Healthz(nil); err == nil ||
					!strings.Contains(err.Error(), "were never listed, for 41s by now; "+tc.want) {
					t.Errorf("Healthz = %v", err)
				}
				r.become(answers)
			})
		})
	}
}

// A connection that dies without a word is found by pings, which end the watch.
func TestHealthzOfAFollowerIsTrueSoonAfterItsConnectionIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReader(t, ns)
		r.put(r.cluster.leaseOf(ns, them, 1))
		defer r.start(t)()
		pass(2 * time.Second)
		r.become(hangs)
		r.hangUp()
		pass(duration/3 - time.Millisecond)
		if err := r.Healthz(nil); err != nil {
			t.Errorf("after a moment: %v", err)
		}
		pass(time.Millisecond)
		if err := r.Healthz(nil); err == nil || !strings.Contains(err.Error(),
			"member: the watch of leases in namespace shop is dead: the API server has not answered for 5s; ") {
			t.Errorf("after a third of D: %v", err)
		}
		r.become(answers)
		pass(staleAfter)
		if err := r.Healthz(nil); err != nil {
			t.Errorf("answered again: %v", err)
		}
	})
}

// An API server that says no lives.
func TestHealthzOfAFollowerWaitsForAServerThatRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReader(t, ns)
		r.put(r.cluster.leaseOf(ns, them, 1))
		defer r.start(t)()
		pass(2 * time.Second)
		r.become(refuses)
		r.hangUp()
		for range 30 {
			pass(time.Second)
			if err := r.Healthz(nil); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Whatever is built on a Member logs where the Member does.
func TestAContextCarriesTheLoggerOfItsMember(t *testing.T) {
	telling(t, member.Options{}, func(t *testing.T, r *reader, l *logged) {
		r.put(r.cluster.leaseOf(ns, us, 1))
		synctest.Wait()
		own := &logged{}
		for parent, want := range map[context.Context]*logged{
			t.Context(): l,
			logr.NewContext(t.Context(), own.logger()): own,
		} {
			ctx, done, err := r.Context(parent, ns)
			if err != nil {
				t.Fatal(err)
			}
			logr.FromContextOrDiscard(ctx).Info("work")
			want.expect(t, "once", 1, `"msg"="work"`)
			done()
		}
	})
}

func TestARegistrationThatSomebodyDeletesIsToldAsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &logged{}
		r := newReaderWith(t, member.Options{Registration: registration(t), Logger: l.logger()})
		r.say(ns, us, 7)
		defer r.start(t)()
		pass(time.Second)
		for _, own := range r.registered() {
			r.do(&write{method: http.MethodDelete, namespace: home, name: own.Name})
		}
		pass(2 * confirm)
		l.expect(t, "deleted", 1, `"level"=0 "msg"="Registers again, and does not lead until then"`, "an edit has deleted it")
	})
}

package member_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/member"
)

const (
	lasts   = 15 * time.Second // a registration, from its confirmation
	confirm = lasts / 3
)

// newRegistered is a Member that registers. Leases last an hour, so that its registration is what bounds a term.
func newRegistered(t *testing.T, namespaces ...string) *reader {
	t.Helper()
	r := &reader{server: newServer(), cluster: newCluster(t)}
	m, err := member.New(r.config(), member.Options{
		Namespaces: namespaces, Clock: r.cluster.clock, StaleAfter: staleAfter, Registration: registration(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Member = m
	return r
}

// say has the hub write a Lease that lasts an hour.
func (r *reader) say(namespace, holder string, epoch int64) {
	l := r.cluster.leaseOf(namespace, holder, epoch)
	*l.Spec.LeaseDurationSeconds = 3600
	r.put(l)
}

func (r *reader) leads(namespace string) bool {
	synctest.Wait()
	_, ok := r.Term(namespace)
	return ok
}

// registered runs f with a Member that is registered and leads.
func registered(t *testing.T, f func(t *testing.T, r *reader)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRegistered(t)
		r.say(ns, us, 7)
		defer r.start(t)()
		if !r.leads(ns) {
			t.Fatal("does not lead")
		}
		f(t, r)
		r.become(answers) // so that the Member can leave
		r.meet(stored)
	})
}

func TestARegistrationSaysWhoFollowsWhat(t *testing.T) {
	for name, tc := range map[string]struct{ namespaces, want []string }{
		"all":  {nil, nil},
		"some": {[]string{"shop", "ledger", "shop"}, []string{"ledger", "shop"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistered(t, tc.namespaces...)
				began := r.cluster.clock.Now().Wall
				defer r.start(t)()
				synctest.Wait()
				got := r.registration(t)
				if !slices.Equal(got.Namespaces, tc.want) || got.Account != account || got.Duration != lasts ||
					!got.Confirmed.Equal(began) || len(got.Released) > 0 {
					t.Errorf("registered %+v", got)
				}
				l := r.registered()[0]
				if l.Namespace != home || !strings.HasPrefix(l.Name, "leasecast-reader-") || len(l.OwnerReferences) > 0 ||
					len(l.Finalizers) != 1 {
					t.Errorf("the registration is %v", l.ObjectMeta)
				}
			})
		})
	}
}

// A process that starts again knows nothing of what the one before may still be doing.
func TestARegistrationIsNeverThatOfAnEarlierStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host, err := os.Hostname()
		if err != nil {
			t.Fatal(err)
		}
		identities, names := map[string]bool{}, map[string]bool{}
		for range 3 {
			r := newRegistered(t)
			stop := r.start(t)
			synctest.Wait()
			l := r.registered()[0]
			identities[*l.Spec.HolderIdentity], names[l.Name] = true, true
			if strings.Contains("-"+l.Name+"-", "-"+host+"-") || len(*l.Spec.HolderIdentity) < 20 {
				t.Errorf("the registration %s of %s is named after the Pod, or after nothing", l.Name, *l.Spec.HolderIdentity)
			}
			stop()
		}
		if len(identities) != 3 || len(names) != 3 {
			t.Errorf("3 starts, identities %v, names %v", identities, names)
		}
	})
}

func TestNothingIsTrustedBeforeTheRegistration(t *testing.T) {
	for name, f := range map[string]fate{
		"refused":                      forbidden,
		"never answered":               silent,
		"answered with an error":       dropped,
		"stored, with the answer lost": unanswered,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistered(t)
				r.say(ns, us, 7)
				r.meet(f)
				defer r.start(t)()
				for range 20 {
					pass(time.Second)
					if r.leads(ns) {
						t.Fatal("leads without a registration")
					}
				}
				if asked := r.listed(); asked > 0 {
					t.Errorf("Leases were listed %d times, and must be after the registration", asked)
				}
				r.meet(stored)
				pass(5 * time.Second)
				if !r.leads(ns) {
					t.Error("does not lead when registered")
				}
				if got := r.registration(t); len(got.Released) > 0 { // the one whose answer was lost, if any, and no other
					t.Errorf("registered %+v", got)
				}
			})
		})
	}
}

// listed is how often Leases were asked for.
func (r *reader) listed() (times int) {
	for _, path := range r.requests() {
		if strings.Contains(path, "?leasecast.dev/managed") {
			times++
		}
	}
	return times
}

// The hub lists the registrations after it has revoked. A registration that this list lacks must see the revocation,
// however far the API server's cache is behind.
func TestARevocationBeforeTheRegistrationIsSeenAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistered(t)
		r.say(ns, us, 7)
		behind := r.cluster.leaseOf(ns, us, 7)
		r.behind = &coordinationv1.LeaseList{
			TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "LeaseList"},
			ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []coordinationv1.Lease{*behind},
		}
		r.after = func(w write) {
			if w.method == http.MethodPost { // the last moment at which a list of the hub does not find it
				r.put(r.cluster.leaseOf(ns, none, 8))
			}
		}
		told := 0
		r.Listen(member.Listener{Promoted: func(string, member.Term) { told++ }})
		defer r.start(t)()
		for range 20 {
			if r.leads(ns) {
				t.Fatal("leads after the revocation")
			}
			pass(time.Second)
		}
		if told > 0 {
			t.Error("led for a moment")
		}
		if got := r.registration(t); !got.HasReleased(ns, 7) {
			t.Errorf("released %v, want epoch 7: nothing of it is under way", got.Released)
		}
	})
}

func TestARegistrationIsConfirmedInTime(t *testing.T) {
	registered(t, func(t *testing.T, r *reader) {
		r.watchOver(func(w write) {
			if w.method == http.MethodGet {
				t.Error("looks at what it has written itself")
			}
		})
		for range 100 {
			pass(time.Second)
			got := r.registration(t)
			if age := r.cluster.clock.Now().Wall.Sub(got.Confirmed); age > confirm {
				t.Fatalf("confirmed %v ago, want at most %v", age, confirm)
			}
		}
		if !r.leads(ns) {
			t.Error("does not lead any more")
		}
		if writes := r.written(); writes > 22 {
			t.Errorf("%d writes in 100 s", writes)
		}
	})
}

func TestATermEndsWithTheConfirmationOfItsRegistration(t *testing.T) {
	for name, tc := range map[string]struct {
		happens func(r *reader)
		leads   bool
	}{
		"not before":                {func(*reader) { pass(lasts - time.Microsecond) }, true},
		"at its end":                {func(*reader) { pass(lasts) }, false},
		"the wall clock jumps":      {func(r *reader) { r.cluster.clock.Step(lasts); pass(recheck) }, false},
		"the machine was suspended": {func(r *reader) { r.cluster.clock.Suspend(lasts); pass(recheck) }, false},
		"the wall clock steps back": {func(r *reader) { r.cluster.clock.Step(-time.Hour); pass(lasts) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			registered(t, func(t *testing.T, r *reader) {
				r.meet(dropped)
				ctx, cancel, err := r.Context(t.Context(), ns)
				if err != nil {
					t.Fatal(err)
				}
				defer cancel()
				tc.happens(r)
				if r.leads(ns) != tc.leads || (ctx.Err() == nil) != tc.leads {
					t.Errorf("leads = %v, the context says %v; want leads = %v", !tc.leads, context.Cause(ctx), tc.leads)
				}
				if cause := context.Cause(ctx); !tc.leads &&
					(!errors.Is(cause, member.ErrLost) || !strings.Contains(cause.Error(), "registration")) {
					t.Errorf("cause %v, want one that names the registration", cause)
				}
			})
		})
	}
}

func TestAConfirmationCountsFromBeforeItsRequest(t *testing.T) {
	registered(t, func(t *testing.T, r *reader) {
		r.meet(late)
		pass(confirm + slow)
		r.meet(dropped)
		pass(lasts - slow - time.Microsecond)
		if !r.leads(ns) {
			t.Error("does not lead although its registration was confirmed")
		}
		pass(time.Microsecond)
		if r.leads(ns) {
			t.Error("leads on from when the answer came")
		}
	})
}

func TestAConfirmationThatComesTooLateIsNone(t *testing.T) {
	registered(t, func(t *testing.T, r *reader) {
		before := r.registration(t).Identity
		r.meet(late)
		pass(confirm + slow/2) // the request is on its way
		r.cluster.clock.Suspend(lasts - confirm + time.Second)
		synctest.Wait()
		if r.leads(ns) {
			t.Fatal("leads although the hub may have taken it for stopped")
		}
		r.meet(stored)
		pass(5 * time.Second)
		all := r.registrations(t)
		if !r.leads(ns) || len(all) != 2 || all[0].Identity != before && all[1].Identity != before {
			t.Errorf("leads = %v with %+v, want a new registration beside the old", r.leads(ns), all)
		}
	})
}

// A process that was stopped for a minute finds out before it does anything.
func TestAPausedReaderRegistersAnew(t *testing.T) {
	registered(t, func(t *testing.T, r *reader) {
		before := r.registration(t).Identity
		term, _ := r.Term(ns)
		r.cluster.clock.Suspend(time.Minute)
		if term.Holds() {
			t.Error("the term stands after a minute")
		}
		pass(10 * time.Second)
		all := r.registrations(t)
		if !r.leads(ns) || len(all) != 2 || all[0].Identity == all[1].Identity {
			t.Errorf("leads = %v with %+v, want another registration than %s", r.leads(ns), all, before)
		}
	})
}

func TestARegistrationThatSomebodyTouchesIsGivenUp(t *testing.T) {
	for name, happens := range map[string]func(r *reader, w *write){
		"it is deleted": func(r *reader, w *write) { w.method = http.MethodDelete; r.do(w) },
		"it is removed": func(r *reader, w *write) { r.remove(home, w.name) },
		"it is another object": func(r *reader, w *write) {
			r.remove(home, w.name)
			w.method, w.sent.ResourceVersion = http.MethodPost, ""
			r.do(w)
		},
	} {
		t.Run(name, func(t *testing.T) {
			registered(t, func(t *testing.T, r *reader) {
				l := r.registered()[0]
				ctx, cancel, err := r.Context(t.Context(), ns)
				if err != nil {
					t.Fatal(err)
				}
				defer cancel()
				happens(r, &write{method: http.MethodPut, namespace: home, name: l.Name, sent: l.DeepCopy()})
				pass(confirm)
				synctest.Wait()
				if !errors.Is(context.Cause(ctx), member.ErrLost) {
					t.Errorf("work goes on after the next confirmation: %v", context.Cause(ctx))
				}
				pass(time.Second)
				if !r.leads(ns) {
					t.Error("did not register anew")
				}
				for _, now := range r.registered() {
					if now.Name != l.Name && *now.Spec.HolderIdentity != *l.Spec.HolderIdentity {
						return
					}
				}
				t.Error("registered under the same name or identity")
			})
		})
	}
}

func TestARegistrationThatIsDeletedBeforeItIsKnownIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistered(t)
		r.say(ns, us, 7)
		r.meet(unanswered)
		defer r.start(t)()
		synctest.Wait()
		l := r.registered()[0]
		r.do(&write{method: http.MethodDelete, namespace: home, name: l.Name})
		r.meet(stored)
		pass(5 * time.Second)
		if all := r.registered(); !r.leads(ns) || len(all) != 2 {
			t.Errorf("leads = %v with %d registrations, want another one beside that which is being deleted",
				r.leads(ns), len(all))
		}
		if got := r.listed(); got != 2 { // a list and a watch
			t.Errorf("Leases were asked for %d times, want only after the one that stands", got)
		}
	})
}

// What may have been stored without an answer is the reader's own, and no reason to stop.
func TestALostAnswerIsNoLostRegistration(t *testing.T) {
	const fault = confirm + slow + 500*time.Millisecond
	for name, tc := range map[string]struct {
		fate  fate
		lasts time.Duration
	}{
		"stored":           {unanswered, fault},
		"stored later":     {delayed, fault},
		"never arrived":    {dropped, fault},
		"no answer at all": {silent, confirm + 100*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			registered(t, func(t *testing.T, r *reader) {
				before := r.registration(t).Identity
				ctx, cancel, err := r.Context(t.Context(), ns)
				if err != nil {
					t.Fatal(err)
				}
				defer cancel()
				for range 5 {
					r.meet(tc.fate)
					pass(tc.lasts)
					r.meet(stored)
					pass(confirm)
				}
				if ctx.Err() != nil || r.registration(t).Identity != before {
					t.Errorf("the term is over (%v), registered %+v", context.Cause(ctx), r.registration(t))
				}
			})
		})
	}
}

func TestHealthzTellsOfARegistrationThatIsNotConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistered(t)
		r.meet(forbidden)
		defer r.start(t)()
		if pass(staleAfter); r.Healthz(nil) != nil {
			t.Errorf("Healthz = %v", r.Healthz(nil))
		}
		pass(time.Second)
		const hint = "bind leasecast-registration (config/reader) to the account of this program"
		expect := func(want string) {
			t.Helper()
			if err := r.Healthz(nil); err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("Healthz = %v, want %s", err, want)
			}
		}
		expect("member: the registration in namespace home was never made, for 41s by now; " + hint)
		r.meet(stored)
		if pass(5 * time.Second); r.Healthz(nil) != nil {
			t.Errorf("Healthz = %v after it was registered", r.Healthz(nil))
		}
		r.meet(forbidden)
		pass(staleAfter + confirm)
		expect("member: the registration in namespace home is stale: last confirmed 4")
		if err := r.Healthz(nil); err == nil || !strings.Contains(err.Error(), "want at most 40s; "+hint) {
			t.Errorf("Healthz = %v, want one that says what to do", err)
		}
		r.meet(stored)
	})
}

func TestAMemberTakesItsRegistrationBack(t *testing.T) {
	for name, tc := range map[string]struct {
		works time.Duration // on, after it was told to stop
		f     fate
		left  string           // why it is left to the hub; empty: it is not
		want  map[string]int64 // last released
	}{
		"at once":                    {want: map[string]int64{ns: 7}},
		"when its work has finished": {works: 4 * time.Second, want: map[string]int64{ns: 7}},
		"not when work goes on":      {works: time.Minute, left: "work goes on after its term"},
		"not when it cannot":         {f: forbidden, left: "write registration"},
		"nor when nobody answers":    {f: silent, left: "context deadline exceeded"},
		"as far as it can":           {f: unanswered, left: "connection reset by peer", want: map[string]int64{ns: 7}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, says := &logged{}, 0
				r := newReaderWith(t, member.Options{Registration: registration(t), Logger: l.logger()})
				r.say(ns, us, 7)
				r.say("other", them, 8) // it has never led there, and has nothing to release
				stop := r.start(t)
				synctest.Wait()
				ctx, done, err := r.Context(t.Context(), ns)
				if err != nil {
					t.Fatal(err)
				}
				finished := make(chan struct{})
				go func() {
					defer close(finished)
					<-ctx.Done()
					pass(tc.works)
					done()
				}()
				r.meet(tc.f)
				began := time.Now()
				stop()
				if took := time.Since(began); took > 5*time.Second+recheck {
					t.Errorf("Start returned %v after its end", took)
				}
				if tc.left != "" {
					says = 1
				}
				l.expect(t, "at the end", says, leavesIt, tc.left)
				if left := len(r.registered()); left != says {
					t.Errorf("%d registrations are left, want %d", left, says)
				}
				var released map[string]int64
				for _, w := range r.writes {
					if w.method == http.MethodPut {
						last, err := wire.ReadRegistration(w.sent)
						if err != nil {
							t.Fatal(err)
						}
						released = last.Released
					}
				}
				if !maps.Equal(released, tc.want) {
					t.Errorf("released %v, want %v", released, tc.want)
				}
				<-finished
			})
		})
	}
}

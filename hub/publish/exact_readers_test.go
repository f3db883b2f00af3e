package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/assign"
)

var readerKey = types.NamespacedName{Namespace: "pods", Name: "r"}

// The registration of a reader that has died is deleted, and then its finalizer is taken off, unless the reader lives.
func TestARegistrationIsRemoved(t *testing.T) {
	missing := apierrors.NewNotFound(leases, "r")
	replaced := func(w *world) {
		w.member.mu.Lock()
		defer w.member.mu.Unlock()
		obj := w.member.leases[readerKey].DeepCopy()
		obj.UID = "another"
		w.member.store(readerKey, obj)
	}
	gone := func(w *world) {
		w.member.mu.Lock()
		defer w.member.mu.Unlock()
		delete(w.member.leases, readerKey)
	}
	for name, test := range map[string]struct {
		fails   map[string]error // by the verb
		happens func(*world)     // once it was deleted
		err     bool
		stays   bool // with its finalizer
	}{
		"where the member does it":                    {},
		"not where it refuses the deletion":           {fails: map[string]error{"delete": errForbidden}, err: true, stays: true},
		"not where it does not say what is left":      {fails: map[string]error{"list": errForbidden}, err: true, stays: true},
		"not where it refuses to free it":             {fails: map[string]error{"update": errForbidden}, err: true, stays: true},
		"one that has gone before is no failure":      {fails: map[string]error{"delete": missing}, stays: true},
		"nor is one that went with the deletion":      {happens: gone},
		"nor one that went before it was freed":       {fails: map[string]error{"update": missing}, stays: true},
		"another one of that name is left as it is":   {happens: replaced, stays: true},
		"nor does it wait for ever for a dead member": {fails: map[string]error{"delete": nil}, err: true, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			unstarted(t, map[string]func(*world){"": func(w *world) {
				obj := w.register("r")
				w.member.becomes(func(ctx context.Context, r request) error {
					err, fails := test.fails[r.verb]
					if fails && err == nil {
						return swallow(ctx, r)
					}
					return err
				}, func(_ context.Context, r request) error {
					if r.verb == "delete" && test.happens != nil {
						test.happens(w)
					}
					return nil
				})
				began := time.Now()
				err := w.removeRegistration(w.t.Context(), obj)
				if (err != nil) != test.err {
					w.t.Errorf("it fails with %v", err)
				}
				if errors.Is(err, context.DeadlineExceeded) != (time.Since(began) == readersTimeout) {
					w.t.Errorf("it took %v: %v", time.Since(began), err)
				}
				w.member.mu.Lock()
				defer w.member.mu.Unlock()
				if left := w.member.leases[readerKey]; (left != nil && len(left.Finalizers) > 0) != test.stays {
					w.t.Errorf("left is %+v", left)
				}
			}})
		})
	}
}

func TestReadersAreListed(t *testing.T) {
	unstarted(t, map[string]func(*world){
		"which is an answer of the member, and shows its version": func(w *world) {
			w.register("r")
			w.listReaders(w.t.Context())
			if want := strconv.Itoa(w.member.version); !slices.Equal(w.reports, []error{nil}) || w.history.newestVersion != want || len(w.acks.registrations) != 1 {
				w.t.Errorf("reported %v; the newest is %s, want %s; known are %v", w.reports, w.history.newestVersion, want, w.acks.registrations)
			}
		},
		"within a time": func(w *world) {
			w.member.becomes(swallow, nil)
			began := time.Now()
			w.listReaders(w.t.Context())
			if time.Since(began) != readersTimeout {
				w.t.Errorf("it took %v", time.Since(began))
			}
		},
		"to no purpose as the hub stops": func(w *world) {
			w.register("r")
			ctx, cancel := context.WithCancel(w.t.Context())
			w.member.becomes(nil, func(context.Context, request) error { cancel(); return nil })
			w.listReaders(ctx)
			if len(w.reports) > 0 || len(w.acks.registrations) > 0 {
				w.t.Errorf("reported %v, known are %v", w.reports, w.acks.registrations)
			}
		},
		"less and less often while they are asked": func(w *world) {
			w.register("r")
			w.ledFor(settled)
			began := time.Now()
			w.revoke()
			after(10 * second)
			if n := count(w.member.since(began), "list"); n < 10 || n > 15 {
				w.t.Errorf("%d times in 10 s", n)
			}
			w.stop()
		},
		"and the dead are not swept by a hub that stops": func(w *world) {
			w.ObserveReader(w.register("r"))
			after(10 * time.Minute)
			ctx, cancel := context.WithCancel(w.t.Context())
			cancel()
			if w.removeExpired(ctx); len(w.member.requests) > 0 {
				w.t.Errorf("sent %v", w.member.requests)
			}
			if w.removeExpired(w.t.Context()); len(w.member.requests) == 0 {
				w.t.Error("nothing was dead")
			}
		},
	})
}

// Readers are asked after a revocation, if what they say can count.
func TestWhenReadersAreAsked(t *testing.T) {
	const began = 1000 * second // of the world, after which its past is in doubt
	for name, test := range map[string]struct {
		at      time.Duration // after that
		change  func(*world, *leaseSyncer)
		revokes int64
		asked   bool
	}{
		"once the past is settled":              {at: 16 * second, revokes: 20, asked: true},
		"and not before":                        {at: 16*second - 1, revokes: 20},
		"by the longest D of a policy":          {at: 59 * second, revokes: 20, change: func(_ *world, l *leaseSyncer) { l.timings.LongestPromise = 60 * second }},
		"until it has passed":                   {at: 60 * second, revokes: 20, change: func(_ *world, l *leaseSyncer) { l.timings.LongestPromise = 60 * second }, asked: true},
		"by the longest registration":           {at: 60 * second, revokes: 20, change: longest},
		"until that has passed, and ε":          {at: 61 * second, revokes: 20, change: longest, asked: true},
		"not of a request that revoked nothing": {at: 99 * second},
		"not of another term than is revoked":   {at: 99 * second, revokes: 19},
		"not where the Lease is to be another now": {at: 99 * second, revokes: 20, change: func(_ *world, l *leaseSyncer) {
			l.want.Role = assign.Follow
		}},
		"of the first term that there can be, too": {at: 99 * second, revokes: 1, asked: true, change: func(_ *world, l *leaseSyncer) {
			l.want.Revoked.Epoch = 1
		}},
		"not while a late request may still make a leader's Lease": {at: 99 * second, revokes: 20, change: func(_ *world, l *leaseSyncer) {
			l.createPendingUntil = began + 99*second + 1
		}},
		"until it cannot": {at: 99 * second, revokes: 20, asked: true, change: func(_ *world, l *leaseSyncer) {
			l.createPendingUntil = began + 99*second
		}},
		"not where they may have believed a later term": {at: 99 * second, revokes: 20, change: func(_ *world, l *leaseSyncer) {
			l.status.PoisonedEpoch = 21
		}},
		"but where they believed more of this one, they ask as for any": {at: 99 * second, revokes: 20, asked: true, change: func(_ *world, l *leaseSyncer) {
			l.status.PoisonedEpoch = 20
		}},
	} {
		t.Run(name, func(t *testing.T) {
			unstarted(t, map[string]func(*world){"": func(w *world) {
				after(began)
				w.history.since = w.clock.Now().Boot
				w.Assign(keyOf("a"), assign.Assignment{Role: assign.Revoke, Term: term("", 21), Revoked: term("east", 20)}, ackTimings)
				l := w.syncer(keyOf("a"))
				if test.change != nil {
					test.change(w, l)
				}
				after(test.at)
				w.askReaders(keyOf("a"), l, step{action: update, revokes: test.revokes})
				if asked := len(w.acks.questions) == 1; asked != test.asked {
					w.t.Errorf("asked: %v, want %v", asked, test.asked)
				}
			}})
		})
	}
}

// longestDuration has readers registered of which one may act for 60 s.
func longest(w *world, _ *leaseSyncer) {
	for i := range 20 {
		w.ObserveReader(w.register(strconv.Itoa(i), func(r *lease.Registration) { r.Duration = time.Duration(41+i) * second }))
	}
}

func TestALateRequestKeepsItsBound(t *testing.T) {
	unstarted(t, map[string]func(*world){"": func(w *world) {
		r := newRig(w.t)
		r.put(contentOf(renewedAt(0, term("east", 20))), testKey)
		l := &leaseSyncer{timings: Timings{LongestPromise: 16 * second}, createPendingUntil: time.Hour}
		w.noteUnanswered(l, step{action: create, lease: r.there})
		if l.createPendingUntil != time.Hour {
			w.t.Errorf("it may come until %v", l.createPendingUntil)
		}
		l.createPendingUntil = 0
		w.noteUnanswered(l, step{action: create, lease: r.there})
		if l.createPendingUntil != 16*second {
			w.t.Errorf("it may come until %v", l.createPendingUntil)
		}
	}})
}

func TestARevocationIsDoneOnlyBySealedWords(t *testing.T) {
	r := newRig(t)
	r.leads().at(2)
	r.assign(assign.Revoke, term("", 21), revoking(term("east", 20)))
	r.put(contentOf(renewedAt(2, term("", 21))), otherKey)
	r.show()
	r.next("read").answered().next("wait").facts(SyncStatus{})
}

func TestTheNewestVersionIsTheHighestShown(t *testing.T) {
	var h history
	for _, shown := range []struct{ version, newest string }{{"", ""}, {"5", "5"}, {"3", "5"}, {"", "5"}, {"12", "12"}, {"12", "12"}} {
		if h.observe(shown.version); h.newestVersion != shown.newest {
			t.Errorf("after %q the newest is %q, want %q", shown.version, h.newestVersion, shown.newest)
		}
	}
}

// What a read finds is older than what was known of the same object, or it is no sign of a restore.
func TestWhatShowsAnOlderState(t *testing.T) {
	object := func(seconds float64, changes ...func(*coordinationv1.Lease)) *coordinationv1.Lease {
		r := newRig(t)
		r.put(contentOf(renewedAt(seconds, term("west", 20))), testKey, changes...)
		return r.there
	}
	l := newRig(t).syncer
	knowing := func(obj *coordinationv1.Lease) known {
		l.setKnown(obj)
		return l.known
	}
	another := newRig(t)
	another.put(contentOf(renewedAt(0, term("west", 21))), testKey)
	ofAnother := func(obj *coordinationv1.Lease) { obj.UID = "another" }
	for name, test := range map[string]struct {
		before known
		found  *coordinationv1.Lease
		back   bool
	}{
		"an earlier renewTime of the same term": {knowing(object(5)), object(0), true},
		"not the same":                          {knowing(object(5)), object(5), false},
		"not one that is gone":                  {knowing(object(5)), nil, false},
		"not one where none was known":          {knowing(nil), object(0), false},
		"not another object":                    {knowing(object(5)), object(0, ofAnother), false},
		"not that of another term":              {knowing(object(5)), another.there, false},
		"not after a renewTime without a seal":  {knowing(object(5, annotated("leasecast.dev/seal", "none"))), object(0), false},
	} {
		t.Run(name, func(t *testing.T) {
			unstarted(t, map[string]func(*world){"": func(w *world) {
				s := step{action: read, before: test.before}
				if got := l.showsOlderState(s, test.found); got != test.back {
					w.t.Errorf("back: %v, want %v", got, test.back)
				}
				if got := w.noteState(l, s, test.found); got != test.back {
					w.t.Errorf("judged: %v, want %v", got, test.back)
				}
				if test.found != nil && w.history.newestVersion != test.found.ResourceVersion {
					w.t.Errorf("the newest is %q", w.history.newestVersion)
				}
			}})
		})
	}
}

func TestWhichAnswerToAWriteShowsAnOlderState(t *testing.T) {
	at := func(version string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}
	}
	for name, test := range map[string]struct {
		step  step
		found *coordinationv1.Lease
		back  bool
	}{
		"a newer version does not":                        {step{action: update, lease: at("3"), newestVersion: "7"}, at("8"), false},
		"an older one does":                               {step{action: update, lease: at("3"), newestVersion: "7"}, at("5"), true},
		"that of an update that changed nothing does not": {step{action: update, lease: at("3"), newestVersion: "7"}, at("3"), false},
		"a new object with an older version does":         {step{action: create, lease: at(""), newestVersion: "7"}, at("5"), true},
		"none does where nothing was known":               {step{action: create, lease: at("")}, at("5"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := newRig(t).syncer.showsOlderState(test.step, test.found); got != test.back {
				t.Errorf("%v, want %v", got, test.back)
			}
		})
	}
}

func TestAQuestionIsOpen(t *testing.T) {
	for name, test := range map[string]struct {
		question question
		open     bool
	}{
		"before a list says who there is":    {question{}, true},
		"while one has not answered":         {question{waiting: map[types.UID]bool{"a": true}}, true},
		"not once all have":                  {question{waiting: map[types.UID]bool{}}, false},
		"not if nobody can answer it":        {question{unanswerable: true}, false},
		"nor if somebody could, were it not": {question{unanswerable: true, waiting: map[types.UID]bool{"a": true}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newAcks()
			r.questions["ns"] = &test.question
			if got := r.unanswered(); got != test.open {
				t.Errorf("open: %v, want %v", got, test.open)
			}
		})
	}
}

func TestTheSilentAndTheDeadAreNamedInOrder(t *testing.T) {
	r, want := newAcks(), []string(nil)
	r.ask(keyOf("ns"), 20)
	var ls []*coordinationv1.Lease
	for i := range 9 {
		want = append(want, fmt.Sprintf("pods/%d", i))
		ls = append(ls, registered(strconv.Itoa(i), 9-i))
	}
	r.listed(10, ls...)
	var dead []string
	for _, l := range r.expired(at(100), second) {
		dead = append(dead, l.Namespace+"/"+l.Name)
	}
	if !slices.Equal(dead, want) {
		t.Errorf("dead are %v", dead)
	}
	if got := r.cancel(keyOf("ns")); !slices.Equal(got, want) {
		t.Errorf("silent are %v", got)
	}
}

// A registration was confirmed at zero for 15 s; ε is 1 s.
func TestSinceWhenARegistrationIsKnown(t *testing.T) {
	stepped := func(wallAt, bootAt float64) lease.Reading {
		return lease.Reading{Wall: wall(wallAt), Boot: at(bootAt).Boot}
	}
	for name, test := range map[string]struct {
		do   func(*acks)
		at   lease.Reading
		dead bool // or forgotten
	}{
		"a later version counts anew, whatever it says": {func(r *acks) {
			r.put(registered("a", 1), at(0))
			r.put(registered("a", 2), at(10))
		}, at(25), false},
		"one that was missed and is back lives": {func(r *acks) {
			r.put(registered("a", 1), at(0))
			r.observeList(nil, "10", 0, at(1))
			r.observeList([]coordinationv1.Lease{*registered("a", 1)}, "11", 0, at(20))
		}, at(35), false},
		"one that is missed again and again is missed since the first time": {func(r *acks) {
			r.put(registered("a", 1), at(0))
			r.observeList(nil, "10", 0, at(10))
			r.observeList(nil, "11", 0, at(20))
		}, at(26), true},
		"one that is newer than the list is not missed": {func(r *acks) {
			r.put(registered("a", 11), at(0))
			r.observeList(nil, "10", 0, at(10))
		}, at(17), true},
		"one that is missed lives by both clocks": {func(r *acks) {
			r.put(registered("a", 1), at(0))
			r.observeList(nil, "10", 0, at(10))
		}, stepped(20, 1000), false},
		"so does one that cannot be read": {func(r *acks) {
			r.put(torn(registered("a", 1)), at(0))
		}, stepped(3000, 5000), false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newAcks()
			test.do(&r)
			if dead := len(r.expired(test.at, second)) > 0 || len(r.registrations) == 0; dead != test.dead {
				t.Errorf("dead: %v, want %v", dead, test.dead)
			}
		})
	}
}

func TestWithoutAPolicyARenewalIsDueAtTheNextRenewTime(t *testing.T) {
	for _, ns := range namespaces(20) {
		c := contentOf(renewedAt(0, term("east", 20)))
		if got := (&leaseSyncer{namespace: ns}).due(c).Sub(c.RenewTime); got != time.Microsecond {
			t.Errorf("%s is due after %v", ns, got)
		}
	}
}

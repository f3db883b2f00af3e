package publish

import (
	"context"
	"errors"
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

// An expired registration is deleted, and then its finalizer is removed.
func TestExpiredRegistrationIsRemoved(t *testing.T) {
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
		"the member does it": {},
		"the deletion is refused": {fails: map[string]error{"delete": errForbidden}, err: true,
			stays: true},
		"the list is refused": {fails: map[string]error{"list": errForbidden}, err: true,
			stays: true},
		"the update is refused": {fails: map[string]error{"update": errForbidden}, err: true,
			stays: true},
		"gone before":                          {fails: map[string]error{"delete": missing}, stays: true},
		"gone with the deletion":               {happens: gone},
		"gone before the update":               {fails: map[string]error{"update": missing}, stays: true},
		"replaced by another one of that name": {happens: replaced, stays: true},
		"the member does not answer":           {fails: map[string]error{"delete": nil}, err: true, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
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
			})
		})
	}
}

func TestReadersAreListed(t *testing.T) {
	bubble(t, map[string]func(*world){
		"the list is an answer, and shows a version": func(w *world) {
			w.register("r")
			w.listReaders(w.t.Context())
			if want := strconv.Itoa(w.member.version); !slices.Equal(w.reports, []error{nil}) ||
				w.history.newestVersion != want || len(w.acks.registrations) != 1 {
				w.t.Errorf("reported %v; the newest is %s, want %s; known are %v", w.reports, w.history.newestVersion, want,
					w.acks.registrations)
			}
		},
		"the list is bounded": func(w *world) {
			w.member.becomes(swallow, nil)
			began := time.Now()
			w.listReaders(w.t.Context())
			if time.Since(began) != readersTimeout {
				w.t.Errorf("it took %v", time.Since(began))
			}
		},
		"the hub stops during the list: ignored": func(w *world) {
			w.register("r")
			ctx, cancel := context.WithCancel(w.t.Context())
			w.member.becomes(nil, func(context.Context, request) error { cancel(); return nil })
			w.listReaders(ctx)
			if len(w.reports) > 0 || len(w.acks.registrations) > 0 {
				w.t.Errorf("reported %v, known are %v", w.reports, w.acks.registrations)
			}
		},
		"while a question is open: once a second at last": func(w *world) {
			w.register("r")
			w.ledFor(settled)
			began := time.Now()
			w.revoke()
			after(10 * second)
			if n := count(w.member.since(began), "list"); n < 10 || n > 15 {
				w.t.Errorf("%d times in 10 s", n)
			}
		},
		"the hub stops: no registration is removed": func(w *world) {
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
		"when the history is long enough": {at: 16 * second, revokes: 20, asked: true},
		"1 ns before":                     {at: 16*second - 1, revokes: 20},
		"by the longest D of a policy": {at: 59 * second, revokes: 20,
			change: func(_ *world, l *leaseSyncer) { l.timings.LongestPromise = 60 * second }},
		"until it has passed": {at: 60 * second, revokes: 20,
			change: func(_ *world, l *leaseSyncer) { l.timings.LongestPromise = 60 * second }, asked: true},
		"by the longest registration":           {at: 60 * second, revokes: 20, change: longest},
		"until that has passed, and ε":          {at: 61 * second, revokes: 20, change: longest, asked: true},
		"not of a request that revoked nothing": {at: 99 * second},
		"not of another term than is revoked":   {at: 99 * second, revokes: 19},
		"not where the Lease is to be another now": {at: 99 * second, revokes: 20, change: func(_ *world, l *leaseSyncer) {
			l.want.Role = assign.Follow
		}},
		"of the first term that there can be, too": {at: 99 * second, revokes: 1, asked: true,
			change: func(_ *world, l *leaseSyncer) {
				l.want.Revoked.Epoch = 1
			}},
		"not while a late request may still make a leader's Lease": {at: 99 * second, revokes: 20,
			change: func(_ *world, l *leaseSyncer) {
				l.createPendingUntil = began + 99*second + 1
			}},
		"until it cannot": {at: 99 * second, revokes: 20, asked: true, change: func(_ *world, l *leaseSyncer) {
			l.createPendingUntil = began + 99*second
		}},
		"not where they may have believed a later term": {at: 99 * second, revokes: 20,
			change: func(_ *world, l *leaseSyncer) {
				l.status.PoisonedEpoch = 21
			}},
		"but where they believed more of this one, they ask as for any": {at: 99 * second, revokes: 20, asked: true,
			change: func(_ *world, l *leaseSyncer) {
				l.status.PoisonedEpoch = 20
			}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				after(began)
				w.history.since = w.clock.Now().Boot
				w.Assign(keyOf("a"), assign.Assignment{Role: assign.Revoke, Term: term("", 21), Revoked: term("east", 20)},
					ackTimings)
				l := w.syncer(keyOf("a"))
				if test.change != nil {
					test.change(w, l)
				}
				after(test.at)
				w.askReaders(keyOf("a"), l, step{action: update, revokes: test.revokes})
				if asked := len(w.acks.questions) == 1; asked != test.asked {
					w.t.Errorf("asked: %v, want %v", asked, test.asked)
				}
			})
		})
	}
}

// longestDuration has readers registered of which one may act for 60 s.
func longest(w *world, _ *leaseSyncer) {
	for i := range 20 {
		w.ObserveReader(w.register(strconv.Itoa(i),
			func(r *lease.Registration) { r.Duration = time.Duration(41+i) * second }))
	}
}

func TestAnswerToAWriteThatShowsAnOlderState(t *testing.T) {
	at := func(version string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}
	}
	for name, test := range map[string]struct {
		action               action
		based, newest, found string
		older                bool
	}{
		"a newer version":                       {update, "3", "7", "8", false},
		"an older version":                      {update, "3", "7", "5", true},
		"an update that changes nothing":        {update, "3", "7", "3", false},
		"a new object with an older version":    {create, "", "7", "5", true},
		"a new object, and no version is known": {create, "", "", "5", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := step{action: test.action, lease: at(test.based), newestVersion: test.newest}
			if got := newRig(t).syncer.showsOlderState(s, at(test.found)); got != test.older {
				t.Errorf("%v, want %v", got, test.older)
			}
		})
	}
}

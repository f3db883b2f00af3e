package worker

import (
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard"
)

// stock is a lock whose elector has the usual durations.
var stock = v1alpha1.LockFence{Namespace: "till", Name: "stock", LeaseDurationSeconds: 15, RenewDeadlineSeconds: 10, RetryPeriodSeconds: 2}

// lockOf is a fence of a lock by the leader of namespace shop.
func lockOf(l v1alpha1.LockFence) guard.Fence {
	return guard.Fences(us, &v1alpha1.LeadershipPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "shops"},
		Spec: v1alpha1.LeadershipPolicySpec{
			Namespaces: v1alpha1.NamespaceSelection{Names: []string{"shop"}},
			Fencing:    &v1alpha1.Fencing{LeaderElectionLocks: []v1alpha1.LockFence{l}},
		},
	}, nil)[0]
}

// heldBy is the Lease of the lock, which somebody renewed last some seconds after the start by a clock of his own.
func heldBy(holder string, renewed int) *coordinationv1.Lease {
	at := metav1.NewMicroTime(rigStart.Wall.Add(time.Duration(renewed) * time.Second))
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: stock.Namespace, Name: stock.Name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &at},
	}
}

// renewedOnly is a lock without a holder, and takenOnly one without a time of its renewal.
func renewedOnly() *coordinationv1.Lease {
	l := heldBy("", 8)
	l.Spec.HolderIdentity = nil
	return l
}

func takenOnly(holder string) *coordinationv1.Lease {
	l := heldBy(holder, 0)
	l.Spec.RenewTime = nil
	return l
}

func TestWhenALockIsSaidToBeHeld(t *testing.T) {
	type look struct {
		after int // in seconds, since the term was seen
		found *coordinationv1.Lease
	}
	for name, test := range map[string]struct {
		looks []look
		want  LockState
		next  int
	}{
		"nothing is known after one look":                {[]look{{0, heldBy("a", 0)}}, LockUnseen, 10},
		"one that is renewed between two looks is held":  {[]look{{0, heldBy("a", 0)}, {10, heldBy("a", 8)}}, LockHeld, 70},
		"one that was taken between two looks is held":   {[]look{{0, nil}, {10, heldBy("a", 8)}}, LockHeld, 70},
		"the clock of the holder does not matter":        {[]look{{0, heldBy("a", 0)}, {10, heldBy("a", -3600)}}, LockHeld, 70},
		"a new holder has renewed it, too":               {[]look{{0, heldBy("a", 0)}, {10, heldBy("b", 0)}}, LockHeld, 70},
		"one that nobody has taken may still be taken":   {[]look{{0, nil}, {119, nil}}, LockUnseen, 129},
		"one that nobody has taken for a while is none":  {[]look{{0, nil}, {120, nil}}, LockMissing, 130},
		"an old holder that is gone does not hold it":    {[]look{{0, heldBy("a", 0)}, {120, heldBy("a", 0)}}, LockIdle, 130},
		"a lock that was released is held by nobody":     {[]look{{0, heldBy("a", 0)}, {10, heldBy("", 8)}, {120, heldBy("", 8)}}, LockIdle, 130},
		"a lock that is edited by nobody is not renewed": {[]look{{0, nil}, {10, heldBy("", 8)}, {120, heldBy("", 100)}}, LockIdle, 130},
		"one that has no holder is held by nobody":       {[]look{{0, nil}, {10, &coordinationv1.Lease{}}, {120, renewedOnly()}}, LockIdle, 130},
		"nor is one that nobody has renewed":             {[]look{{0, nil}, {10, takenOnly("a")}, {120, takenOnly("b")}}, LockIdle, 130},
		"one that is held stays so for a while":          {[]look{{0, nil}, {10, heldBy("a", 8)}, {129, heldBy("a", 8)}}, LockHeld, 189},
		"one that was held is not any more":              {[]look{{0, nil}, {10, heldBy("a", 8)}, {130, heldBy("a", 8)}}, LockIdle, 140},
		"one whose Lease somebody has deleted, neither":  {[]look{{0, nil}, {10, heldBy("a", 8)}, {130, nil}}, LockMissing, 140},
		"one that is held late is held":                  {[]look{{0, nil}, {120, nil}, {130, heldBy("a", 128)}}, LockHeld, 190},
		"after a long silence the first look judges not": {[]look{{600, nil}}, LockUnseen, 610},
		"nor does the next one by an old renewal":        {[]look{{0, nil}, {10, heldBy("a", 8)}, {600, heldBy("a", 598)}}, LockHeld, 660},
	} {
		t.Run(name, func(t *testing.T) {
			l := lockLook{since: rigStart.Boot}
			for _, look := range test.looks {
				now := rigStart.Boot + time.Duration(look.after)*time.Second
				l.next = now + lockEvery
				l = l.after(now, look.found, 2*time.Minute)
			}
			if next := l.next - rigStart.Boot; l.state != test.want || next != time.Duration(test.next)*time.Second {
				t.Errorf("state %d and next look at %v, want %d at %ds", l.state, next, test.want, test.next)
			}
		})
	}
}

// looksAtLocks has r look at the lock of a fence for as long as its term lasts.
func (r *rig) looksAtLocks(f guard.Fence, d time.Duration) {
	terms := map[fencedTerm]guard.Fence{{f.Name(), "shop", rigStart.Wall.UnixMicro()}: f}
	for end := time.Now().Add(d); time.Now().Before(end); pass(keepEvery) {
		r.observer.readLocks(r.t.Context(), terms)
		r.observer.publish()
	}
}

func TestALockThatNobodyHolds(t *testing.T) {
	for name, test := range map[string]struct {
		lasts  time.Duration // how long nothing is said of it
		answer *metav1.Status
		want   LockState
	}{
		"is missing after a while":                    {2 * time.Minute, nil, LockMissing},
		"is not said to be so by a cluster's silence": {0, failure(http.StatusInternalServerError, metav1.StatusReasonInternalError), LockUnseen},
		"nor by its refusal":                          {0, failure(http.StatusForbidden, metav1.StatusReasonForbidden), LockUnseen},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				var asked []time.Duration
				r.east.refuses(func(*http.Request) *metav1.Status {
					asked = append(asked, time.Since(r.start))
					return test.answer
				})
				f := lockOf(stock)
				r.looksAtLocks(f, test.lasts)
				if is := r.LockOf(f); is != LockUnseen || r.fenceNews > 0 {
					t.Errorf("state %d, and news %d times", is, r.fenceNews)
				}
				r.looksAtLocks(f, 3*time.Minute-test.lasts)
				if is := r.LockOf(f); is != test.want {
					t.Errorf("state %d, want %d", is, test.want)
				}
				if want := every(lockEvery, 3*time.Minute-lockEvery); !slices.Equal(asked, want) {
					t.Errorf("the cluster was asked at %v, want %v", asked, want)
				}
			})
		})
	}
}

func TestOfALockThatIsHeldNothingIsAskedAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		f, asked := lockOf(stock), 0
		r.east.refuses(func(*http.Request) *metav1.Status { asked++; return nil })
		for i := range 60 {
			r.east.store(heldBy("a", 5*i))
			r.looksAtLocks(f, 5*time.Second)
		}
		if is := r.LockOf(f); is != LockHeld || asked != 6 || r.fenceNews != 1 {
			t.Errorf("state %d; asked %d times, and news %d times; want it held, 6, 1", is, asked, r.fenceNews)
		}
		r.observer.readLocks(t.Context(), nil) // the term is over
		r.observer.publish()
		if is := r.LockOf(f); is != LockUnseen {
			t.Errorf("in a follower its state is %d", is)
		}
	})
}

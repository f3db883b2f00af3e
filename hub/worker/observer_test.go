package worker

import (
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard"
)

// heldBy is the lock's Lease. Its holder renewed it some seconds after the start, by a clock of its own.
func heldBy(holder string, renewed int) *coordinationv1.Lease {
	at := metav1.NewMicroTime(testStart.Wall.Add(time.Duration(renewed) * time.Second))
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: stock.Namespace, Name: stock.Name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &at},
	}
}

// renews has an elector renew the lock for a while.
func (r *env) renews(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); pass(5 * time.Second) {
		r.east.store("/apis/coordination.k8s.io/v1", "leases", heldBy("a", int(time.Since(r.start)/time.Second)))
	}
}

// What the observer sends.
const (
	readLock    = "/leases/stock"
	wakeCronJob = "PATCH http://east/apis/batch/v1/namespaces/shop/cronjobs/bill/status"
)

// observed is an env that fences a lock and Jobs, with a CronJob.
func observed(t *testing.T) *env {
	t.Helper()
	r := newEnv(t, stockLock, allJobs)
	r.cronJobs("bill")
	return r
}

// reports expects this state of the lock, and how often it enqueued the policies' statuses.
func (r *env) reports(want LockState, statuses int) {
	r.t.Helper()
	if lock := r.LockOf(stockLock); lock != want || r.statuses != statuses {
		r.t.Errorf("state %d after %d changes, want %d after %d", lock, r.statuses, want, statuses)
	}
}

func TestObserver_WorksWhereTheMemberLeads(t *testing.T) {
	shows := func(change func(*lease.Content)) func(*env) {
		return func(r *env) {
			c := eastLease(21)
			change(&c)
			r.has(c)
		}
	}
	rows(t, map[string]func(*env){
		"another cluster leads":  shows(func(c *lease.Content) { c.Holder = "west.fleet" }),
		"the term has ended":     shows(func(c *lease.Content) { c.RenewTime = c.RenewTime.Add(-2 * time.Hour) }),
		"the term has not begun": shows(func(c *lease.Content) { c.AcquireTime = c.AcquireTime.Add(time.Minute) }),
		"an unfenced namespace": func(r *env) {
			r.east.shows(func(a *memberAPI) { a.namespaces = map[string]map[string]string{"bank": nil} })
			shows(func(c *lease.Content) { c.Namespace = "bank" })(r)
		},
		"another policy's Lease": func(r *env) {
			o := &v1alpha1.LeadershipPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "banks"}}
			o.Spec.Namespaces.Names, o.Spec.LeaseName = []string{"bank"}, "another"
			o.Spec.Fencing = &v1alpha1.Fencing{Schedules: &metav1.LabelSelector{}}
			r.will(func(r *env) { r.wanted = append(r.wanted, guard.Fences(us, o, nil)...) })
			r.east.loses("/leases/")
			shows(func(c *lease.Content) { c.Name = "another" })(r)
		},
		"the namespace is gone": func(r *env) { r.east.shows(func(a *memberAPI) { a.namespaces = nil }) },
		"no policy has fences": func(r *env) {
			r.unlisted(true, errRefused)
			r.will(func(r *env) { r.wanted = nil })
		},
		"the member takes no part":       func(r *env) { r.is("east", takesNoPart) },
		"another installation serves it": func(r *env) { r.will(func(r *env) { r.by = them }) },
	}, func(t *testing.T, change func(*env)) {
		r := observed(t)
		change(r)
		end := r.observes()
		r.renews(20 * time.Second)
		end()
		if n := len(r.at(readLock)) + len(r.at(wakeCronJob)); n > 0 || r.LockOf(stockLock) != LockUnseen {
			t.Errorf("%d requests, and the lock's state is %d", n, r.LockOf(stockLock))
		}

		r = observed(t)
		defer r.observes()()
		r.renews(20 * time.Second)
		r.reports(LockHeld, 1)
		change(r)
		pass(keepEvery)
		r.reports(LockUnseen, 2)
		if n := len(r.observer.wakings); n > 0 {
			t.Errorf("%d terms that are over are kept", n)
		}
	})
}

// What cannot be read may have changed or not. What was woken is not woken again.
func TestObserver_KeepsWhatItSawWhileTheTermIsNotKnown(t *testing.T) {
	rows(t, map[string]func(r *env, err error){
		"the policies":   func(r *env, err error) { r.will(func(r *env) { r.unread = err }) },
		"the namespaces": func(r *env, err error) { r.unlisted(false, err) },
		"the Leases":     func(r *env, err error) { r.unlisted(true, err) },
	}, func(t *testing.T, lose func(*env, error)) {
		r := observed(t)
		defer r.observes()()
		r.renews(20 * time.Second)
		read := len(r.at(readLock))
		lose(r, errRefused)
		pass(2 * heldEvery)
		r.reports(LockHeld, 1)
		lose(r, nil)
		pass(10 * time.Second)
		if n := len(r.at(readLock)); n <= read {
			t.Error("the lock is not read again")
		}
		if woken := r.at(wakeCronJob); !slices.Equal(woken, []time.Duration{0, wakeAgain}) {
			t.Errorf("woken at %v, want 0 and %v", woken, wakeAgain)
		}
	})
}

func TestLockState_ByRenewals(t *testing.T) {
	type at struct {
		seconds int // since the term was seen
		lock    *coordinationv1.Lease
	}
	noHolder, noTime, other := heldBy("", 8), heldBy("a", 0), heldBy("b", 0)
	noHolder.Spec.HolderIdentity, noTime.Spec.RenewTime, other.Spec.RenewTime = nil, nil, nil
	held := heldBy("a", 8)
	for name, test := range map[string]struct {
		reads []at
		want  LockState
		next  int
	}{
		"read once":                       {[]at{{0, heldBy("a", 0)}}, LockUnseen, 10},
		"taken":                           {[]at{{0, nil}, {10, held}}, LockHeld, 70},
		"renewed by a late clock":         {[]at{{0, heldBy("a", 0)}, {10, heldBy("a", -3600)}}, LockHeld, 70},
		"renewed by a new holder":         {[]at{{0, heldBy("a", 0)}, {10, heldBy("b", 0)}}, LockHeld, 70},
		"missing for 119 s":               {[]at{{0, nil}, {119, nil}}, LockUnseen, 129},
		"missing for 120 s":               {[]at{{0, nil}, {120, nil}}, LockMissing, 130},
		"not renewed":                     {[]at{{0, heldBy("a", 0)}, {120, heldBy("a", 0)}}, LockIdle, 130},
		"released":                        {[]at{{0, held}, {10, heldBy("", 8)}, {120, heldBy("", 8)}}, LockIdle, 130},
		"its holder is absent":            {[]at{{0, nil}, {10, &coordinationv1.Lease{}}, {120, noHolder}}, LockIdle, 130},
		"its renewTime is absent":         {[]at{{0, nil}, {10, noTime}, {120, other}}, LockIdle, 130},
		"renewed 119 s ago":               {[]at{{0, nil}, {10, held}, {129, held}}, LockHeld, 189},
		"deleted 120 s ago":               {[]at{{0, nil}, {10, held}, {130, nil}}, LockMissing, 140},
		"taken late":                      {[]at{{0, nil}, {120, nil}, {130, heldBy("a", 128)}}, LockHeld, 190},
		"first read after a long silence": {[]at{{600, nil}}, LockUnseen, 610},
	} {
		t.Run(name, func(t *testing.T) {
			l := lockLook{since: testStart.Boot}
			for _, read := range test.reads {
				now := testStart.Boot + time.Duration(read.seconds)*time.Second
				l.next = now + lockEvery
				l = l.after(now, read.lock, 2*time.Minute)
			}
			if next := l.next - testStart.Boot; l.state != test.want || next != time.Duration(test.next)*time.Second {
				t.Errorf("state %d and next read at %v, want %d at %d s", l.state, next, test.want, test.next)
			}
		})
	}
}

// Silence and rejections show nothing. Nothing is read more often than needed.
func TestObserver_StatesByAnswers(t *testing.T) {
	type row struct {
		answer *metav1.Status
		holder bool
		want   LockState
	}
	rows(t, map[string]row{
		"a holder renews it":   {nil, true, LockHeld},
		"it is not there":      {nil, false, LockMissing},
		"the member is silent": {internal, false, LockUnseen},
		"the member rejects":   {forbidden, false, LockUnseen},
	}, func(t *testing.T, row row) {
		r := newEnv(t, stockLock)
		r.answer = func(*http.Request) *metav1.Status { return row.answer }
		defer r.observes()()
		const lasts = 175 * time.Second
		if r.renews(0); row.holder {
			r.renews(lasts)
		} else {
			pass(time.Minute)
			if lock := r.LockOf(stockLock); lock != LockUnseen {
				t.Errorf("after a minute, the state is %d: it may still be taken", lock)
			}
			pass(lasts - time.Minute)
		}
		states := 1
		if row.want == LockUnseen {
			states = 0
		}
		r.reports(row.want, states)
		locks := every(lockEvery, lasts)
		if row.holder {
			locks = []time.Duration{0, lockEvery, lockEvery + heldEvery, lockEvery + 2*heldEvery}
		}
		if got := r.at(readLock); !slices.Equal(got, locks) {
			t.Errorf("the lock is read at %v, want %v", got, locks)
		}
		if len(r.sent) != len(locks) {
			t.Errorf("%d requests, want %d", len(r.sent), len(locks))
		}
		r.will(func(r *env) { r.answer = func(*http.Request) *metav1.Status { return internal } })
		pass(heldEvery)
		r.reports(row.want, states)
	})
}

func TestObserver_EndsTheReadsOfATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newEnv(t, stockLock)
		r.east.takes = func(*http.Request) time.Duration { return time.Hour }
		began := time.Now()
		if r.observe(t.Context()); time.Since(began) != readTimeout {
			t.Errorf("a turn takes %v, want %v", time.Since(began), readTimeout)
		}
	})
}

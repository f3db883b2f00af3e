package worker

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard"
)

type account = v1alpha1.FencedServiceAccount

var builder = account{Namespace: "ci", Name: "builder"}

// hasAccount stores the service account builder in namespace ci.
func (r *env) hasAccount() {
	meta := metav1.ObjectMeta{Namespace: "ci", Name: "builder"}
	r.east.store("/api/v1", "serviceaccounts", &corev1.ServiceAccount{ObjectMeta: meta})
}

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
	readAccount = "/serviceaccounts?"
	wakeCronJob = "PATCH http://east/apis/batch/v1/namespaces/shop/cronjobs/bill/status"
)

// observed is a env that fences a lock, an account and Jobs. All of them are there.
func observed(t *testing.T) *env {
	t.Helper()
	r := newEnv(t, slices.Concat([]guard.Fence{stockLock, allJobs}, writesBy(builder))...)
	r.hasAccount()
	r.cronJobs("bill")
	return r
}

// reports expects these states of the lock and the account, and how often they enqueued the policies' statuses.
func (r *env) reports(lock LockState, account AccountState, statuses int) {
	r.t.Helper()
	if l, a := r.LockOf(stockLock), r.AccountOf(builder); l != lock || a != account || r.statuses != statuses {
		r.t.Errorf("states %d and %d after %d changes, want %d and %d after %d", l, a, r.statuses, lock, account, statuses)
	}
}

func TestObserver_WorksWhereTheMemberLeads(t *testing.T) {
	type row struct {
		change   func(*env)
		accounts AccountState
	}
	shows := func(change func(*lease.Content)) func(*env) {
		return func(r *env) {
			c := eastLease(21)
			change(&c)
			r.has(c)
		}
	}
	rows(t, map[string]row{
		"another cluster leads": {shows(func(c *lease.Content) { c.Holder = "west.fleet" }), AccountFound},
		"no cluster leads":      {shows(func(c *lease.Content) { c.Holder = "" }), AccountFound},
		"the term has ended": {shows(func(c *lease.Content) {
			c.RenewTime = c.RenewTime.Add(-2 * time.Hour)
		}), AccountFound},
		"the term has not begun": {shows(func(c *lease.Content) {
			c.AcquireTime = c.AcquireTime.Add(time.Minute)
		}), AccountFound},
		"an unfenced namespace": {func(r *env) {
			r.east.shows(func(a *memberAPI) { a.namespaces = map[string]map[string]string{"bank": nil} })
			shows(func(c *lease.Content) { c.Namespace = "bank" })(r)
		}, AccountFound},
		"another Lease": {func(r *env) {
			r.east.loses("/leases/")
			shows(func(c *lease.Content) { c.Name = "another" })(r)
		}, AccountFound},
		"the namespace is gone": {func(r *env) {
			r.east.shows(func(a *memberAPI) { a.namespaces = nil })
		}, AccountFound},
		"no policy has fences":           {func(r *env) { r.will(func(r *env) { r.wanted = nil }) }, AccountUnseen},
		"the member takes no part":       {func(r *env) { r.is("east", takesNoPart) }, AccountUnseen},
		"another installation serves it": {func(r *env) { r.will(func(r *env) { r.by = them }) }, AccountUnseen},
		"another replica may write":      {func(r *env) { r.will(func(r *env) { r.standby = true }) }, AccountUnseen},
	}, func(t *testing.T, row row) {
		r := observed(t)
		row.change(r)
		end := r.observes()
		r.renews(20 * time.Second)
		end()
		if n := len(r.at(readLock)) + len(r.at(wakeCronJob)); n > 0 || r.LockOf(stockLock) != LockUnseen {
			t.Errorf("%d requests, and the lock's state is %d", n, r.LockOf(stockLock))
		}
		if got := r.AccountOf(builder); got != row.accounts {
			t.Errorf("the account's state is %d, want %d", got, row.accounts)
		}

		r = observed(t)
		defer r.observes()()
		r.renews(20 * time.Second)
		r.reports(LockHeld, AccountFound, 2)
		row.change(r)
		pass(keepEvery)
		r.reports(LockUnseen, row.accounts, 3)
	})
}

// What cannot be read may have changed or not. What was woken is not woken again.
func TestObserver_KeepsWhatItSawWhileTheTermIsNotKnown(t *testing.T) {
	rows(t, map[string]func(r *env, err error){
		"the policies": func(r *env, err error) { r.will(func(r *env) { r.unread = err }) },
		"the cache": func(r *env, err error) {
			r.east.shows(func(a *memberAPI) { a.uncached = func(client.ObjectList) error { return err } })
		},
	}, func(t *testing.T, lose func(*env, error)) {
		r := observed(t)
		defer r.observes()()
		r.renews(20 * time.Second)
		read := len(r.at(readLock))
		lose(r, errRefused)
		pass(2 * accountEvery)
		r.reports(LockHeld, AccountFound, 2)
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
		"renewed":                         {[]at{{0, heldBy("a", 0)}, {10, held}}, LockHeld, 70},
		"taken":                           {[]at{{0, nil}, {10, held}}, LockHeld, 70},
		"renewed by a late clock":         {[]at{{0, heldBy("a", 0)}, {10, heldBy("a", -3600)}}, LockHeld, 70},
		"renewed by a new holder":         {[]at{{0, heldBy("a", 0)}, {10, heldBy("b", 0)}}, LockHeld, 70},
		"missing for 119 s":               {[]at{{0, nil}, {119, nil}}, LockUnseen, 129},
		"missing for 120 s":               {[]at{{0, nil}, {120, nil}}, LockMissing, 130},
		"not renewed":                     {[]at{{0, heldBy("a", 0)}, {120, heldBy("a", 0)}}, LockIdle, 130},
		"released":                        {[]at{{0, held}, {10, heldBy("", 8)}, {120, heldBy("", 8)}}, LockIdle, 130},
		"edited without a holder":         {[]at{{0, nil}, {10, heldBy("", 8)}, {120, heldBy("", 100)}}, LockIdle, 130},
		"its holder is absent":            {[]at{{0, nil}, {10, &coordinationv1.Lease{}}, {120, noHolder}}, LockIdle, 130},
		"its renewTime is absent":         {[]at{{0, nil}, {10, noTime}, {120, other}}, LockIdle, 130},
		"renewed 119 s ago":               {[]at{{0, nil}, {10, held}, {129, held}}, LockHeld, 189},
		"renewed 120 s ago":               {[]at{{0, nil}, {10, held}, {130, held}}, LockIdle, 140},
		"deleted 120 s ago":               {[]at{{0, nil}, {10, held}, {130, nil}}, LockMissing, 140},
		"taken late":                      {[]at{{0, nil}, {120, nil}, {130, heldBy("a", 128)}}, LockHeld, 190},
		"first read after a long silence": {[]at{{600, nil}}, LockUnseen, 610},
		"read again after a long silence": {[]at{{0, nil}, {10, held}, {600, heldBy("a", 598)}}, LockHeld, 660},
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
		answer  *metav1.Status
		account account
		holder  bool
		lock    LockState
		found   AccountState
	}
	rows(t, map[string]row{
		"everything is there":             {nil, builder, true, LockHeld, AccountFound},
		"an account of any namespace":     {nil, account{Name: "builder"}, true, LockHeld, AccountFound},
		"an account of another namespace": {nil, account{Namespace: "shop", Name: "builder"}, true, LockHeld, AccountMissing},
		"an account of no namespace":      {nil, account{Name: "bilder"}, true, LockHeld, AccountMissing},
		"nothing is there":                {nil, account{Name: "bilder"}, false, LockMissing, AccountMissing},
		"the member is silent":            {internal, builder, false, LockUnseen, AccountUnseen},
		"the member rejects":              {forbidden, builder, false, LockUnseen, AccountUnseen},
	}, func(t *testing.T, row row) {
		r := newEnv(t, slices.Concat([]guard.Fence{stockLock}, writesBy(row.account, row.account), writesBy(row.account))...)
		r.hasAccount()
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
		if lock, found := r.LockOf(stockLock), r.AccountOf(row.account); lock != row.lock || found != row.found {
			t.Errorf("the states are %d and %d, want %d and %d", lock, found, row.lock, row.found)
		}
		locks := every(lockEvery, lasts)
		if row.holder {
			locks = []time.Duration{0, lockEvery, lockEvery + heldEvery, lockEvery + 2*heldEvery}
		}
		if got := r.at(readLock); !slices.Equal(got, locks) {
			t.Errorf("the lock is read at %v, want %v", got, locks)
		}
		query := strings.ReplaceAll("fieldSelector=metadata.name%3DNAME&limit=1", "NAME", row.account.Name)
		read := r.at(readAccount, query)
		if !slices.Equal(read, every(accountEvery, lasts)) || len(r.sent) != len(locks)+len(read) {
			t.Errorf("%d requests, accounts are read at %v", len(r.sent), read)
		}
		states := 0
		for _, seen := range []bool{row.lock != LockUnseen, row.found != AccountUnseen} {
			if seen {
				states++
			}
		}
		if r.statuses != states {
			t.Errorf("statuses were enqueued %d times, want %d", r.statuses, states)
		}
		r.will(func(r *env) { r.answer = func(*http.Request) *metav1.Status { return internal } })
		pass(accountEvery)
		if lock, found := r.LockOf(stockLock), r.AccountOf(row.account); lock != row.lock || found != row.found {
			t.Errorf("while it is silent, the states are %d and %d", lock, found)
		}
	})
}

func TestObserver_EndsTheReadsOfATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newEnv(t, append(writesBy(builder), stockLock)...)
		r.east.takes = func(*http.Request) time.Duration { return time.Hour }
		began := time.Now()
		if r.observe(t.Context()); time.Since(began) != readTimeout {
			t.Errorf("a turn takes %v, want %v", time.Since(began), readTimeout)
		}
	})
}

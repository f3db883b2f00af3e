package worker

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/publish"
)

// registration is a reader's in namespace pods, which follows these namespaces, or all.
func newRegistration(name string, namespaces ...string) *coordinationv1.Lease {
	l := &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "pods", Name: name, UID: types.UID("uid of " + name), ResourceVersion: "2"},
	}
	writes(l, lease.Registration{Identity: name, Account: "a", Namespaces: namespaces, Confirmed: testStart.Wall})
	return l
}

func writes(l *coordinationv1.Lease, r lease.Registration) {
	r.Duration = 15 * time.Second
	if err := wire.WriteRegistration(r, l); err != nil {
		panic(err)
	}
}

// watches has the worker watch the registrations in east.
func (r *env) watches() (end func()) {
	r.t.Helper()
	end = r.watchReaders(r.t.Context(), r.reads().Readers)
	pass(10 * time.Second)
	r.forget()
	return end
}

const listReaders = "GET http://east/apis/coordination.k8s.io/v1/leases?labelSelector=reader.leasecast.dev"

// nowhere is a member without an address.
type nowhere struct{ *memberAPI }

func (nowhere) GetConfig() *rest.Config { return &rest.Config{Host: "http://[::1"} }

func TestReaders_ThatCannotBeWatchedCostNoWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newEnv(t)
		r.Cluster = nowhere{r.east}
		r.watches()()
	})
}

// revoking has the term of shop in east revoked in a member where one reader has registered, and has not released it.
func revoking(t *testing.T) (r *env, reader *coordinationv1.Lease, released func() bool, end func()) {
	t.Helper()
	r = newEnv(t)
	r.has(eastLease(20))
	end = r.watches()
	p := r.Publisher()
	pass(20 * time.Second) // from then on readers are believed
	live := eastLease(20)
	live.RenewTime = r.Clock.Now().Wall
	r.has(live)
	p.ObserveGone(shopLease)
	reader = newRegistration("reader")
	writes(reader, lease.Registration{Identity: "reader", Account: "reader", Confirmed: r.Clock.Now().Wall})
	r.east.store("/apis/coordination.k8s.io/v1", "leases", reader)
	ended := live.Term
	ended.Holder, ended.Epoch = "", 21
	p.Assign(shopLease, assign.Assignment{Role: assign.Revoke, Revoked: live.Term, Term: ended}, publish.Timings{
		Renew: 5 * time.Second, Timeout: 3 * time.Second, Skew: time.Second, LongestPromise: 16 * time.Second,
	})
	r.writes()
	released = func() bool { return p.SyncStatus(shopLease).Released == 20 }
	if released() {
		t.Fatal("it is released before the reader has released it")
	}
	return r, reader, released, end
}

func TestReaders_ReleaseATermByTheWatch(t *testing.T) {
	rows(t, map[string][]string{
		"it is new": {"ADDED"}, "it is changed": {"ADDED", "MODIFIED"},
	}, func(t *testing.T, kinds []string) {
		r, reader, released, end := revoking(t)
		defer end()
		for i, kind := range kinds {
			l := reader.DeepCopy()
			l.ResourceVersion = fmt.Sprint(90 + i)
			if i == len(kinds)-1 {
				writes(l, lease.Registration{
					Identity: "reader", Account: "reader", Confirmed: r.Clock.Now().Wall, Released: map[string]int64{"shop": 20},
				})
			}
			if r.east.sends(kind, l); released() != (i == len(kinds)-1) {
				t.Errorf("after %q the term is released: %v", kinds[:i+1], released())
			}
		}
	})
}

// A reader whose registration a new list lacks may still act: its end may have been a restore of the member's etcd.
func TestReaders_MissingInANewListMayStillAct(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, reader, released, end := revoking(t)
		defer end()
		r.east.sends("ADDED", reader)
		stored := r.east.holds("/leases/reader")[0]
		r.east.loses(stored)
		pass(readersEvery)
		r.enqueued()
		r.east.sends("ERROR", failure(http.StatusGone, metav1.StatusReasonExpired))
		pass(10 * time.Second)
		if len(r.at(listReaders)) == 0 || released() {
			t.Errorf("lists at %v; the term is released: %v", r.at(listReaders), released())
		}
		if !slices.Contains(r.enqueued(), "") {
			t.Error("no decision is enqueued, although one reader less is counted")
		}
		r.east.sends("ADDED", reader)
		if r.east.sends("DELETED", reader); !released() {
			t.Error("its end is shown, and the term is not released")
		}
	})
}

func TestReaders_AreCounted(t *testing.T) {
	unreadable, half := newRegistration("odd"), newRegistration("half", "shop")
	unreadable.Annotations = nil
	delete(half.Annotations, v1alpha1.ReaderAccountAnnotation)
	moved := newRegistration("shopper", "ledger")
	synctest.Test(t, func(t *testing.T) {
		r := newEnv(t)
		r.east.store("/apis/coordination.k8s.io/v1", "leases", newRegistration("old"))
		end := r.runs(func(ctx context.Context) {
			defer r.watchReaders(ctx, r.reads().Readers)()
			<-ctx.Done()
		})
		defer end()
		pass(10 * time.Second)
		for i, step := range []struct {
			when, kind   string
			reader       *coordinationv1.Lease
			shop, ledger int
			enqueued     []string
		}{
			{"an earlier one", "", nil, 1, 1, []string{""}},
			{"one for a namespace", "ADDED", newRegistration("shopper", "shop"), 2, 1, []string{"shop"}},
			{"it confirms", "MODIFIED", newRegistration("shopper", "shop"), 2, 1, nil},
			{"it follows another namespace", "MODIFIED", moved, 1, 2, nil},
			{"an unreadable one", "ADDED", unreadable, 2, 3, []string{""}},
			{"one whose namespaces can be read", "ADDED", half, 3, 3, []string{"shop"}},
			{"that one goes", "DELETED", half, 2, 3, []string{"shop"}},
			{"the first one goes", "DELETED", moved, 2, 2, []string{"ledger"}},
		} {
			if step.reader != nil {
				step.reader.ResourceVersion = fmt.Sprint(100 + i)
				r.east.sends(step.kind, step.reader)
			}
			pass(readersEvery)
			if shop, ledger := r.Readers("shop"), r.Readers("ledger"); shop != step.shop || ledger != step.ledger {
				t.Errorf("%s: %d follow shop and %d ledger, want %d and %d", step.when, shop, ledger, step.shop, step.ledger)
			}
			enqueued := slices.DeleteFunc(r.enqueued(), func(ns string) bool { return step.reader == nil && ns != "" })
			if !slices.Equal(slices.Compact(enqueued), step.enqueued) {
				t.Errorf("%s: enqueued %q, want %q", step.when, enqueued, step.enqueued)
			}
		}
	})
}

// A watch holds everything that it shows in its cache.
func TestReaders_WatchThatShowsTooManyRests(t *testing.T) {
	type row struct {
		stored int
		added  bool // one more, later
		listed []time.Duration
	}
	rows(t, map[string]row{
		"as many as are kept": {2000, false, []time.Duration{0}},
		"one more":            {2001, false, []time.Duration{0, readersPause}},
		"one more comes":      {2000, true, []time.Duration{0, readersPause + time.Second}},
	}, func(t *testing.T, row row) {
		r := newEnv(t)
		for n := range row.stored {
			r.east.store("/apis/coordination.k8s.io/v1", "leases", newRegistration(fmt.Sprint(n), "shop"))
		}
		p := r.reads()
		r.forget()
		defer r.watchReaders(t.Context(), p.Readers)()
		pass(time.Second)
		if row.added {
			r.east.sends("ADDED", newRegistration("more", "shop"))
			pass(time.Second)
		}
		required := Required{}
		if len(row.listed) > 1 {
			required.Err = errNoReaders
		}
		is := r.Required("shop", Requires{Reader: true})
		if n := r.Readers("shop"); is != required || (n == 0) != (is.Err != nil) {
			t.Errorf("%d readers are counted, required is %+v, want %+v", n, is, required)
		}
		pass(readersPause + 2*time.Second)
		if got := r.at(listReaders, "resourceVersion"); !slices.Equal(got, row.listed) {
			t.Errorf("listed at %v, want %v", got, row.listed)
		}
		if !slices.Contains(r.enqueued(), "shop") {
			t.Error("no decision is enqueued for those that are there")
		}
	})
}

// A page of registrations may be larger than what is read of one answer, as where tenants fill annotations.
func TestReaders_LargerThanAnAnswerAreTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newEnv(t)
		r.east.fails = func(req *http.Request) error {
			if strings.Contains(req.URL.RawQuery, "reader.leasecast.dev") {
				return fmt.Errorf("leases: %w", transport.ErrTooLarge)
			}
			return nil
		}
		if p := r.reads(); !p.Readers.TooMany() || len(r.events) != 1 {
			t.Errorf("too many: %v, events: %q", p.Readers.TooMany(), r.events)
		}
		r.east.fails = nil
		pass(20 * time.Second)
		if r.writes(); r.Publisher().Readers.TooMany() {
			t.Error("too many, although all were listed since")
		}
	})
}

// What the management cluster stores does not grow with what tenants write.
func TestReaders_ThatComeAndGoCostFewWritesOnTheHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newEnv(t)
		defer r.watches()()
		const seconds = 60
		for range seconds {
			for range 10 {
				r.east.sends("ADDED", newRegistration("fickle", "shop"))
				r.east.sends("DELETED", newRegistration("fickle", "shop"))
				pass(time.Second / 10)
			}
		}
		if n := len(r.enqueued()); n < seconds/2 || n > seconds {
			t.Errorf("%d decisions in %d s, want one a second", n, seconds)
		}
		pass(2 * readersEvery)
		r.enqueued()
		if pass(readersEvery); len(r.enqueued()) > 0 {
			t.Error("without a change, a decision is enqueued")
		}
	})
}

// A policy that requires a reader needs one that follows the namespace.
func TestRequired_ReaderFollowsTheNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newEnv(t)
		p := r.reads()
		r.enqueued()
		r.east.takes = func(*http.Request) time.Duration { return time.Second }
		defer r.watchReaders(t.Context(), p.Readers)()
		synctest.Wait()
		if is := r.Required("shop", Requires{Reader: true}); is != (Required{Err: ErrUnread}) {
			t.Errorf("while the readers are listed: %+v", is)
		}
		if pass(5 * time.Second); !slices.Contains(r.enqueued(), "") {
			t.Error("no decision is enqueued when it is known that there is no reader")
		}
		unreadable := newRegistration("odd", "shop")
		delete(unreadable.Annotations, v1alpha1.ReaderAccountAnnotation)
		r.east.sends("ADDED", unreadable)
		r.east.sends("ADDED", newRegistration("keeper", "ledger"))
		if is := r.Required("shop", Requires{Reader: true}); is.Unhealthy == "" || is.Err != nil {
			t.Errorf("no reader follows it, but one that cannot be read: %+v", is)
		}
		if is := r.Required("ledger", Requires{Reader: true}); is != (Required{}) {
			t.Errorf("a reader follows it: %+v", is)
		}
	})
}

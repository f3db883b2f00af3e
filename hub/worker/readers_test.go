package worker

import (
	"fmt"
	"net/http"
	"slices"
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
	"github.com/leasecast/leasecast/hub/publish"
)

// nowhere is a member without an address.
type nowhere struct{ *registry }

func (nowhere) GetConfig() *rest.Config { return &rest.Config{Host: "http://[::1"} }

func TestReadersThatCannotBeWatchedCostNoWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.readers.Cluster = nowhere{&registry{}}
		r.readers.watch(t.Context(), r.reads())()
	})
}

// confirmed is the registration of a reader that follows everything, and has released what it says.
func confirmed(t *testing.T, at time.Time, l *coordinationv1.Lease, released map[string]int64) *coordinationv1.Lease {
	t.Helper()
	l = l.DeepCopy()
	if err := wire.WriteRegistration(lease.Registration{
		Identity: "reader", Account: "reader", Confirmed: at, Duration: 3 * time.Second, Released: released,
	}, l); err != nil {
		t.Fatal(err)
	}
	return l
}

// revoking has the term of shop in east revoked in a member where one reader has registered, and has not released it.
func revoking(t *testing.T) (r *rig, p *publish.Publisher, reader *coordinationv1.Lease, released func() bool) {
	t.Helper()
	r = newRig(t)
	r.has(eastLease(20))
	p = r.reads()
	pass(20 * time.Second) // from then on readers are believed
	live := eastLease(20)
	live.RenewTime = r.Clock.Now().Wall
	r.has(live)
	p.ObserveGone(shopLease)
	reader = r.east.store(confirmed(t, r.Clock.Now().Wall, &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "pods", Name: "reader", UID: "uid of reader"},
	}, nil))
	revoked, ended := live.Term, live.Term
	ended.Holder, ended.Epoch = "", 21
	p.Assign(shopLease, assign.Assignment{Role: assign.Revoke, Revoked: revoked, Term: ended}, publish.Timings{
		Renew: 5 * time.Second, Timeout: 3 * time.Second, Skew: time.Second, LongestPromise: 16 * time.Second,
	})
	r.writes()
	released = func() bool { return p.SyncStatus(shopLease).Released == 20 }
	if released() {
		t.Fatal("it is released before the reader said so")
	}
	return r, p, reader, released
}

// What a watch shows of a reader counts at once.
func TestAReaderThatIsSeenToReleaseATermIsHeard(t *testing.T) {
	for name, kind := range map[string]string{"it was changed": "MODIFIED", "it is new": "ADDED"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, p, reader, released := revoking(t)
				shown := &registry{version: r.east.version}
				if kind == "MODIFIED" {
					shown.items = []coordinationv1.Lease{*reader}
				}
				r.readers.Cluster = shown
				stop := r.readers.watch(t.Context(), p)
				pass(10 * time.Second)
				if released() {
					t.Fatal("it is released before the reader said so")
				}
				said := confirmed(t, rigStart.Wall.Add(20*time.Second), reader, map[string]int64{"shop": 20})
				said.ResourceVersion = "99"
				if shown.tell(kind, said); !released() {
					t.Error("nobody heard it")
				}
				_ = shown.watch.Close()
				stop()
			})
		})
	}
}

// A reader whose registration a new list merely lacks may still act: its end may have been a restore of the member's etcd.
// One whose end is shown has stopped.
func TestWhatANewListOfReadersLacksIsNoEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, p, reader, released := revoking(t)
		releases := func(want bool, when string) {
			t.Helper()
			if is := released(); is != want {
				t.Fatalf("%s: all readers have released the term: %v, want %v", when, is, want)
			}
		}
		shown := &registry{version: r.east.version, items: []coordinationv1.Lease{*reader}}
		r.readers.Cluster = shown
		stop := r.readers.watch(t.Context(), p)
		pass(10 * time.Second)
		if shown.watch == nil {
			t.Fatal("readers are not watched")
		}
		shown.mu.Lock()
		shown.items, shown.version = nil, shown.version+1
		lists := shown.lists
		shown.mu.Unlock()
		shown.tell("ERROR", failure(http.StatusGone, metav1.StatusReasonExpired))
		pass(10 * time.Second)
		if shown.lists == lists {
			t.Fatal("readers were not listed anew")
		}
		releases(false, "a new list lacks it")
		shown.tell("ADDED", reader)
		releases(false, "it is shown again")
		shown.tell("DELETED", reader)
		releases(true, "its end is shown")
		want := []string{ // nothing of the one that was there before
			"ReaderGone: pods/reader is not registered any more; readers that are registered in this cluster: 0",
			"ReaderRegistered: pods/reader has registered for all namespaces; readers that are registered in this cluster: 1",
			"ReaderGone: pods/reader is not registered any more; readers that are registered in this cluster: 0",
		}
		if !slices.Equal(r.events, want) {
			t.Errorf("people hear %q, want %q", r.events, want)
		}
		_ = shown.watch.Close()
		stop()
	})
}

// registrationOf is that of a reader in the namespace pods; broken if it has no account.
func registrationOf(t *testing.T, name, account string, namespaces ...string) *coordinationv1.Lease {
	t.Helper()
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "pods", Name: name, UID: types.UID("uid of " + name)}}
	if err := wire.WriteRegistration(lease.Registration{
		Identity: name, Account: "somebody", Namespaces: namespaces, Confirmed: rigStart.Wall, Duration: 15 * time.Second,
	}, l); err != nil {
		t.Fatal(err)
	}
	if account == "" {
		l.Annotations = nil
	}
	return l
}

func TestRegisteredReadersAreCountedAndTheirClusterHearsOfThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		go r.readers.report(t.Context())
		expect := func(when string, shop, ledger int, changed []string, events ...string) {
			t.Helper()
			pass(readersEvery)
			if got := r.Readers("shop"); got != shop {
				t.Errorf("%s: %d readers follow shop, want %d", when, got, shop)
			}
			if got := r.Readers("ledger"); got != ledger {
				t.Errorf("%s: %d readers follow ledger, want %d", when, got, ledger)
			}
			if got := r.news(); !slices.Equal(got, changed) {
				t.Errorf("%s: there is news of %q, want %q", when, got, changed)
			}
			if !slices.Equal(r.events, events) {
				t.Errorf("%s: events %q, want %q", when, r.events, events)
			}
			r.events = nil
		}
		expect("at first", 0, 0, nil)
		r.readers.seen(registrationOf(t, "old", "somebody"), true)
		expect("one that was there before", 1, 1, []string{""})
		r.readers.seen(registrationOf(t, "shopper", "somebody", "shop"), false)
		expect("one for a namespace", 2, 1, []string{"shop"},
			"ReaderRegistered: pods/shopper has registered for namespaces shop; readers that are registered in this cluster: 2")
		r.readers.seen(registrationOf(t, "shopper", "somebody", "shop"), false)
		expect("it confirms", 2, 1, nil)
		r.readers.seen(registrationOf(t, "odd", ""), false)
		expect("one that cannot be read counts everywhere", 3, 2, []string{""},
			"ReaderRegistered: pods/odd has registered for namespaces that cannot be read; readers that are registered in this cluster: 3")
		half := registrationOf(t, "half", "somebody", "shop")
		delete(half.Annotations, v1alpha1.ReaderAccountAnnotation)
		r.readers.seen(half, false)
		expect("one that cannot be read counts where it says, if that can be read", 4, 2, []string{"shop"},
			"ReaderRegistered: pods/half has registered for namespaces shop; readers that are registered in this cluster: 4")
		r.readers.gone("uid of half")
		expect("it goes", 3, 2, []string{"shop"}, "ReaderGone: pods/half is not registered any more; readers that are registered in this cluster: 3")
		r.readers.gone("uid of shopper")
		expect("one goes", 2, 2, []string{"shop"},
			"ReaderGone: pods/shopper is not registered any more; readers that are registered in this cluster: 2")
		r.readers.gone("uid of shopper")
		expect("it cannot go twice", 2, 2, nil)
	})
}

// Tenants register as many as they like. The hub keeps so many of them, and tells of no others.
func TestReadersThatAreTooManyAreNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for n := range publish.MaxRegistrations {
			r.readers.seen(registrationOf(t, fmt.Sprint(n), "somebody", "shop"), true)
		}
		expect := func(when string, shop, ledger int, events ...string) {
			t.Helper()
			if s, l := r.Readers("shop"), r.Readers("ledger"); s != shop || l != ledger {
				t.Errorf("%s: %d follow shop, and %d ledger, want %d and %d", when, s, l, shop, ledger)
			}
			if !slices.Equal(r.events, events) {
				t.Errorf("%s: events %q, want %q", when, r.events, events)
			}
			r.events = nil
		}
		r.readers.seen(registrationOf(t, "more", "somebody", "shop"), false)
		expect("one more", publish.MaxRegistrations, 0)
		r.readers.seen(registrationOf(t, "7", "somebody", "ledger"), false)
		expect("one of them follows another namespace", publish.MaxRegistrations-1, 1)
		r.readers.gone("uid of more")
		expect("the one that was too many goes", publish.MaxRegistrations-1, 1)
		r.readers.gone("uid of 7")
		expect("one of them goes", publish.MaxRegistrations-1, 0, "ReaderGone: pods/7 is not registered any more; readers that are registered in this cluster: 1999")
		r.readers.seen(registrationOf(t, "more", "somebody", "shop"), false)
		expect("there is room again", publish.MaxRegistrations, 0,
			"ReaderRegistered: pods/more has registered for namespaces shop; readers that are registered in this cluster: 2000")
	})
}

// A watch holds all that it shows in its cache.
func TestAWatchThatShowsTooManyReadersRests(t *testing.T) {
	// Of one account no more than 500 are kept.
	account := func(l *coordinationv1.Lease, n int) {
		l.Annotations[v1alpha1.ReaderAccountAnnotation] = fmt.Sprint("account-", n/500)
	}
	for name, test := range map[string]struct {
		shown   int
		changes int   // the number of one that becomes another account's
		lists   []int // when it was begun, just before the rest is over, and after it
	}{
		"as many as are kept": {publish.MaxRegistrations, 0, []int{1, 1, 1}},
		"one more":            {publish.MaxRegistrations + 1, 0, []int{1, 1, 2}},
		"one that becomes one more of its account": {501, 500, []int{1, 1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				p, shown := r.reads(), &registry{version: 1}
				for n := range test.shown {
					l := registrationOf(t, fmt.Sprint(n), "somebody", "shop")
					l.ResourceVersion = "1"
					account(l, n)
					shown.items = append(shown.items, *l)
				}
				r.readers.Cluster = shown
				stop := r.readers.watch(t.Context(), p)
				pass(time.Second)
				lists := []int{shown.listed()}
				if test.changes > 0 {
					l := shown.items[test.changes].DeepCopy()
					l.TypeMeta, l.ResourceVersion = metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}, "2"
					account(l, 0)
					shown.tell("MODIFIED", l)
				}
				for _, d := range []time.Duration{readersPause - 2*time.Second, 3 * time.Second} {
					pass(d)
					lists = append(lists, shown.listed())
				}
				if !slices.Equal(lists, test.lists) {
					t.Errorf("it was listed %v times, want %v", lists, test.lists)
				}
				if !slices.Contains(r.news(), "shop") {
					t.Error("nobody hears of those that there are")
				}
				shown.close()
				stop()
			})
		})
	}
}

func TestAWatchTellsOfAReaderThatThereWasNoRoomFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p, shown := r.reads(), &registry{version: 1}
		r.readers.Cluster = shown
		stop := r.readers.watch(t.Context(), p)
		pass(time.Second)
		for n := range publish.MaxRegistrations {
			r.readers.seen(registrationOf(t, fmt.Sprint(n), "somebody", "ledger"), true)
		}
		late := registrationOf(t, "late", "somebody", "shop")
		late.TypeMeta, late.ResourceVersion = metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}, "2"
		if shown.tell("ADDED", late); r.Readers("shop") != 0 || len(r.events) > 0 {
			t.Errorf("there is room: events %q", r.events)
		}
		r.readers.gone("uid of 7")
		late.ResourceVersion = "3"
		shown.tell("MODIFIED", late)
		want := "ReaderRegistered: pods/late has registered for namespaces shop; readers that are registered in this cluster: 2000"
		if r.Readers("shop") != 1 || !slices.Contains(r.events, want) {
			t.Errorf("there is no room: events %q", r.events)
		}
		_ = shown.watch.Close()
		stop()
	})
}

func TestAWatchTellsWhatAReaderFollowsNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p, shown := r.reads(), &registry{version: 1}
		r.readers.Cluster = shown
		stop := r.readers.watch(t.Context(), p)
		pass(time.Second)
		for n, namespace := range []string{"shop", "ledger"} {
			l := registrationOf(t, "fickle", "somebody", namespace)
			l.TypeMeta, l.ResourceVersion = metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}, fmt.Sprint(n+2)
			shown.tell([]string{"ADDED", "MODIFIED"}[n], l)
			if r.Readers(namespace) != 1 {
				t.Errorf("nobody follows %s", namespace)
			}
		}
		_ = shown.watch.Close()
		stop()
	})
}

package controller

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/hub/election"
)

// registrationOf is that of a reader in the namespace pods; broken if it has no account.
func registrationOf(t *testing.T, name, account string, namespaces ...string) *coordinationv1.Lease {
	t.Helper()
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "pods", Name: name, UID: types.UID("uid of " + name)}}
	if err := wire.WriteRegistration(lease.Registration{
		Identity: name, Account: "somebody", Namespaces: namespaces, Confirmed: musterStart.Wall, Duration: 15 * time.Second,
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
		m := newMuster(t, clusterOf("fleet", "east", "5"))
		a := &attachment{readers: &registeredReaders{}}
		m.attached[eastKey] = a
		news := m.newsOf(eastKey, a.readers)
		expect := func(when string, shop, ledger int, events ...string) {
			t.Helper()
			if got := m.readersIn(eastKey, "shop"); got != shop {
				t.Errorf("%s: %d readers follow shop, want %d", when, got, shop)
			}
			if got := m.readersIn(eastKey, "ledger"); got != ledger {
				t.Errorf("%s: %d readers follow ledger, want %d", when, got, ledger)
			}
			if !slices.Equal(m.events.events, events) {
				t.Errorf("%s: events %q, want %q", when, m.events.events, events)
			}
			m.events.events = nil
		}
		expect("at first", 0, 0)
		news.came(registrationOf(t, "old", "somebody"), true)
		expect("one that was there before", 1, 1)
		news.came(registrationOf(t, "shopper", "somebody", "shop"), false)
		expect("one for a namespace", 2, 1,
			"*v1beta2.Cluster Normal ReaderRegistered: pods/shopper has registered for namespaces shop; readers that are registered in this cluster: 2")
		news.came(registrationOf(t, "shopper", "somebody", "shop"), false)
		expect("it confirms", 2, 1)
		news.came(registrationOf(t, "odd", ""), false)
		expect("one that cannot be read counts everywhere", 3, 2,
			"*v1beta2.Cluster Normal ReaderRegistered: pods/odd has registered for namespaces that cannot be read; readers that are registered in this cluster: 3")
		news.went("uid of shopper")
		expect("one goes", 2, 2,
			"*v1beta2.Cluster Normal ReaderGone: pods/shopper is not registered any more; readers that are registered in this cluster: 2")
		news.went("uid of shopper")
		expect("it cannot go twice", 2, 2)
		m.standby()
		news.went("uid of odd")
		expect("a standby says nothing", 1, 1)
		delete(m.attached, eastKey)
		expect("of a member that is left nothing is known", 0, 0)
	})
}

func TestTheStatusShowsHowManyReadersAreRegistered(t *testing.T) {
	c := candidate{Candidate: election.Candidate{Name: "east"}, readers: 3}
	if got := shown(c, nil); got.Readers != 3 {
		t.Errorf("%d readers are shown, want 3", got.Readers)
	}
}

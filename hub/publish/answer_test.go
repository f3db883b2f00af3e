package publish

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/seal"
)

// Rule 10: a successor's Lease is written anew, to see that it can be.
func TestALeaseWithAMinRenewTime(t *testing.T) {
	placed := SyncStatus{InPlace: true, MinRenewTime: wall(10)}
	run(t, map[string]func(*rig){
		"is written although the old one says the same": func(r *rig) {
			r.follows()
			r.assign(assign.Follow, term("west", 20), minRenewTime(10))
			r.facts(SyncStatus{MinRenewTime: wall(10)})
			r.at(10).next("update west 20 renewTime 10s for 15s").facts(SyncStatus{MinRenewTime: wall(10)}).answered().next("wait").facts(placed)
		},
		"is not in place before it is": func(r *rig) {
			r.follows()
			r.assign(assign.Follow, term("west", 20), minRenewTime(10))
			r.at(10).next("update west 20 renewTime 10s for 15s").unanswered(false)
			r.facts(SyncStatus{MinRenewTime: wall(10), Refused: true, Failing: reason.Unreachable, Problem: reason.Unreachable})
		},
		"is refused when it gets no answer, until it does": func(r *rig) {
			r.follows()
			r.assign(assign.Follow, term("west", 20), minRenewTime(10))
			r.at(10).next("update west 20 renewTime 10s for 15s").unanswered(true)
			r.next("read").answered().next("wait").facts(placed)
		},
		"is refused, and the cluster no candidate until it is written, also when a read before it gets no answer": func(r *rig) {
			r.follows()
			r.syncer.invalidate()
			r.assign(assign.Follow, term("west", 20), minRenewTime(10))
			r.at(10).next("read").unanswered(false)
			r.facts(SyncStatus{MinRenewTime: wall(10), Refused: true, Failing: reason.Unreachable, Problem: reason.Unreachable})
			r.assign(assign.Follow, term("west", 20), minRenewTime(11))
			r.at(11).next("read").answered().next("update west 20 renewTime 11s for 15s").answered()
			r.next("wait").facts(SyncStatus{InPlace: true, MinRenewTime: wall(11)})
		},
		"is refused when it is": func(r *rig) {
			r.follows()
			r.assign(assign.Follow, term("west", 20), minRenewTime(10))
			r.at(10).next("update west 20 renewTime 10s for 15s").failed(errForbidden, pauseRefused)
			r.facts(SyncStatus{MinRenewTime: wall(10), Refused: true, Failing: reason.Forbidden, Problem: reason.Forbidden})
		},
		"stays refused when the next assignment asks somebody else": func(r *rig) {
			r.follows()
			r.assign(assign.Follow, term("west", 20), minRenewTime(10))
			r.at(10).next("update west 20 renewTime 10s for 15s").failed(errForbidden, pauseRefused)
			r.assign(assign.Follow, term("west", 20))
			r.facts(SyncStatus{MinRenewTime: wall(10), Refused: true, Failing: reason.Forbidden, Problem: reason.Forbidden})
			r.at(11).next("update west 20 renewTime 11s for 15s").answered().next("wait").facts(placed)
		},
		"stays in place then, too": func(r *rig) {
			r.follows()
			r.assign(assign.Follow, term("west", 20), minRenewTime(10))
			r.at(10).next("update west 20 renewTime 10s for 15s").answered().next("wait")
			r.assign(assign.Follow, term("west", 20))
			r.facts(placed).next("wait").facts(placed)
		},
		"is asked for anew by the next draining": func(r *rig) {
			r.follows()
			r.assign(assign.Follow, term("west", 20), minRenewTime(10))
			r.at(10).next("update west 20 renewTime 10s for 15s").failed(errForbidden, pauseRefused)
			r.assign(assign.Follow, term("west", 20), minRenewTime(20))
			r.facts(SyncStatus{MinRenewTime: wall(20), Failing: reason.Forbidden, Problem: reason.Forbidden})
		},
		"is no longer asked for in the next term": func(r *rig) {
			r.follows()
			r.assign(assign.Follow, term("west", 20), minRenewTime(10))
			r.assign(assign.Follow, term("south", 21))
			r.facts(SyncStatus{})
		},
		"is not refused by what was sent before it was asked for": func(r *rig) {
			r.follows()
			edited(r)
			r.next("update west 20 renewTime 0s for 15s")
			r.assign(assign.Follow, term("west", 20), minRenewTime(10))
			r.unanswered(false).facts(SyncStatus{MinRenewTime: wall(10), Failing: reason.Unreachable, Problem: reason.Unreachable})
		},
		"nor by what was sent for the draining before": func(r *rig) {
			r.follows()
			r.assign(assign.Follow, term("west", 20), minRenewTime(10))
			r.at(10).next("update west 20 renewTime 10s for 15s")
			r.assign(assign.Follow, term("west", 20), minRenewTime(20))
			r.unanswered(false).facts(SyncStatus{MinRenewTime: wall(20), Failing: reason.Unreachable, Problem: reason.Unreachable})
		},
		"is one of that very instant, as a Lease stores it": func(r *rig) {
			r.assign(assign.Follow, term("west", 20), func(a *assign.Assignment) { a.MinRenewTime = wall(0).Add(999) })
			r.next("read").answered().next("create west 20 renewTime 0s for 15s").answered().next("wait")
			r.facts(SyncStatus{InPlace: true, MinRenewTime: wall(0).Add(999)})
		},
	})
}

func TestAnswers(t *testing.T) {
	missing := apierrors.NewNotFound(leases, "ns")
	run(t, map[string]func(*rig){
		"an ambiguous one is settled by a read: it was carried out": func(r *rig) {
			r.leads().at(5).next("update east 20 renewTime 5s for 15s promise 20s").unanswered(true)
			r.at(8).next("read").answered().next("wait 2s").facts(SyncStatus{InPlace: true})
		},
		"or it was not": func(r *rig) {
			r.leads().at(5).next("update east 20 renewTime 5s for 15s promise 20s").unanswered(false)
			r.at(8).next("read").answered().next("update east 20 renewTime 8s for 15s promise 23s")
		},
		"or it still will be: then the next compare-and-swap fails": func(r *rig) {
			r.leads().at(5).next("update east 20 renewTime 5s for 15s promise 20s")
			late := r.pending
			r.unanswered(false).at(8).next("read").answered().next("update east 20 renewTime 8s for 15s promise 23s")
			now := r.pending
			r.pending = late
			if _, err := r.carry(); err != nil {
				r.t.Fatal(err)
			}
			r.pending = now
			r.answered().next("read").answered().at(9).next("wait 1s")
		},
		"an old event does not settle it": func(r *rig) {
			r.leads()
			old := r.there.DeepCopy()
			r.at(5).next("update east 20 renewTime 5s for 15s promise 20s").unanswered(true)
			r.syncer.observe(old)
			r.next("read")
		},
		"a first Lease without an answer is not written twice": func(r *rig) {
			r.assign(assign.Lead, term("east", 20), first)
			r.next("read").answered().next("create east 20 renewTime 0s for 15s promise 15s").unanswered(false)
			r.at(3).next("read").answered().next("create east 20 renewTime 0s for 15s").answered()
		},
		"nor after its deadline": func(r *rig) {
			r.assign(assign.Lead, term("east", 20), first)
			r.next("read").answered().next("create east 20 renewTime 0s for 15s promise 15s").unanswered(false)
			r.at(15).next("read").answered().next("wait").facts(SyncStatus{Lost: true, Failing: reason.Unreachable})
		},
		"a conflict is read at once": func(r *rig) {
			r.leads()
			r.edit()
			r.at(5).next("update east 20 renewTime 5s for 15s promise 20s").answered().next("read").answered().next("update east 20 renewTime 5s for 15s promise 20s").answered()
		},
		"a second one in a row a little later: whoever else writes may do so in a loop": func(r *rig) {
			r.follows()
			edited(r)
			for range 2 {
				r.edit()
				r.next("update west 20 renewTime 0s for 15s")
				_, err := r.carry()
				if r.syncer.conflicts == 0 {
					r.handed(nil, err).next("read").answered()
				} else {
					r.failed(err, pauseSilent)
				}
			}
			r.next("read").answered().next("update west 20 renewTime 0s for 15s").answered()
			edited(r)
			r.edit()
			r.next("update west 20 renewTime 0s for 15s").answered().next("read")
		},
		"a Lease that cannot be deleted does not make it spin": func(r *rig) {
			r.put(contentOf(renewedAt(-2, term("west", 2000000000))), seal.Key("no key"))
			r.assign(assign.Follow, term("west", 20))
			r.next("read").answered()
			stubborn := r.there
			r.next("remove").answered().next("create west 20 renewTime 0s for 15s")
			r.there = stubborn // a finalizer keeps it
			r.answered().next("read").answered().next("remove").answered().next("create west 20 renewTime 0s for 15s")
			r.there = stubborn
			_, err := r.carry()
			r.failed(err, pauseSilent)
		},
		"a namespace that is not there does not make it spin": func(r *rig) {
			r.assign(assign.Follow, term("west", 20))
			r.next("read").answered().next("create west 20 renewTime 0s for 15s").failed(missing, pauseRefused)
			r.facts(SyncStatus{Failing: reason.NamespaceMissing, Problem: reason.NamespaceMissing}).next("create west 20 renewTime 0s for 15s")
		},
		"a refusal is said and tried again later": func(r *rig) {
			r.follows()
			edited(r)
			r.next("update west 20 renewTime 0s for 15s").failed(errForbidden, pauseRefused).facts(SyncStatus{InPlace: true, Failing: reason.Forbidden, Problem: reason.Forbidden})
			r.next("update west 20 renewTime 0s for 15s").answered().next("wait").facts(SyncStatus{InPlace: true})
		},
		"a refused read as well": func(r *rig) {
			r.assign(assign.Follow, term("west", 20))
			r.next("read").failed(errForbidden, pauseRefused).facts(SyncStatus{Problem: reason.Forbidden}).next("read")
		},
		"credentials that do not count are no refusal: the member's health judges them": func(r *rig) {
			r.leads().at(5).next("update east 20 renewTime 5s for 15s promise 20s").failed(apierrors.NewUnauthorized("expired"), pauseSilent)
			if r.syncer.status.Problem != reason.Unreachable {
				r.t.Errorf("the problem is %s", r.syncer.status.Problem)
			}
		},
		"renewals that are refused for a moment are no problem: an API server that starts refuses everybody": func(r *rig) {
			r.leads().at(5).next("update east 20 renewTime 5s for 15s promise 20s").failed(errForbidden, pauseRefused)
			r.at(6).next("update east 20 renewTime 6s for 15s promise 21s").failed(errForbidden, pauseRefused)
			if r.syncer.status.Problem != reason.Unreachable {
				r.t.Errorf("the problem is %s", r.syncer.status.Problem)
			}
			r.at(7).next("update east 20 renewTime 7s for 15s promise 22s").answered()
			r.at(12).next("update east 20 renewTime 12s for 15s promise 27s").failed(errForbidden, pauseRefused)
			if r.syncer.status.Problem != reason.Unreachable {
				r.t.Errorf("after one that was answered the problem is %s", r.syncer.status.Problem)
			}
		},
		"renewals that are refused for as long as silence is borne are held against the leader": func(r *rig) {
			r.leads().at(5).next("update east 20 renewTime 5s for 15s promise 20s").failed(errForbidden, pauseRefused)
			r.at(9.9).next("update east 20 renewTime 9.9s for 15s promise 24.9s").failed(errForbidden, pauseRefused)
			if r.syncer.status.Problem != reason.Unreachable {
				r.t.Errorf("9.9 s after the last write the problem is %s", r.syncer.status.Problem)
			}
			r.at(10).next("update east 20 renewTime 10s for 15s promise 25s").failed(errForbidden, pauseRefused)
			if r.syncer.status.Problem != reason.Forbidden {
				r.t.Errorf("10 s after the last write the problem is %s", r.syncer.status.Problem)
			}
		},
		"a term that drains because its Lease could not be written tries that by writes that change nothing": func(r *rig) {
			r.leads().at(10).next("update east 20 renewTime 10s for 15s promise 25s").failed(errForbidden, pauseRefused)
			r.assign(assign.Hold, term("east", 20))
			r.next("update east 20 renewTime 0s for 15s").failed(errForbidden, pauseRefused)
			r.at(11).next("update east 20 renewTime 0s for 15s").answered().next("wait").facts(SyncStatus{})
		},
		"it does not try in the name of another term": func(r *rig) {
			r.leads().at(10).next("update east 20 renewTime 10s for 15s promise 25s").failed(errForbidden, pauseRefused)
			r.assign(assign.Hold, term("east", 21))
			r.next("wait")
		},
		"it does not try when the term has run out": func(r *rig) {
			r.leads().at(10).next("update east 20 renewTime 10s for 15s promise 25s").failed(errForbidden, pauseRefused)
			r.assign(assign.Hold, term("east", 20))
			r.at(25).next("wait")
		},
		"a refused renewal keeps its renewTime to itself": func(r *rig) {
			r.leads().at(5).next("update east 20 renewTime 5s for 15s promise 20s").failed(errForbidden, pauseRefused)
			r.at(6).next("update east 20 renewTime 6s for 15s promise 21s")
		},
	})
}

// What a watch tells while a request is under way may be newer than its answer.
func TestWatch(t *testing.T) {
	run(t, map[string]func(*rig){
		"an event that is older than what is known is settled by a read: the member may have been restored": func(r *rig) {
			r.follows()
			old := r.there.DeepCopy()
			old.ResourceVersion = "7"
			r.syncer.observe(old)
			r.next("read").facts(SyncStatus{InPlace: true}).answered().next("wait").facts(SyncStatus{InPlace: true})
		},
		"and what the read says counts, though its version went back": func(r *rig) {
			r.follows()
			uid := r.there.UID
			r.version = 5
			r.put(contentOf(renewedAt(-100, term("east", 19))), testKey, func(l *coordinationv1.Lease) { l.UID = uid })
			r.show()
			r.next("read").answered().next("update west 20 renewTime 0s for 15s")
		},
		"an event of the version that is known changes nothing": func(r *rig) {
			r.follows().show()
			r.next("wait").facts(SyncStatus{InPlace: true})
		},
		"unless it says something else: the member was restored, and gives versions a second time": func(r *rig) {
			r.follows()
			uid, version := r.there.UID, r.there.ResourceVersion
			r.put(contentOf(renewedAt(-100, term("east", 19))), testKey, func(l *coordinationv1.Lease) { l.UID = uid })
			r.there.ResourceVersion = version
			r.show()
			r.next("read").answered().next("update west 20 renewTime 0s for 15s")
		},
		"another object of that name is settled by a read": func(r *rig) {
			r.follows()
			r.put(contentOf(renewedAt(-2, term("west", 20))), seal.Key("no key"))
			r.show()
			r.next("read").answered().next("update west 20 renewTime 0s for 15s")
		},
		"the event of our own write may come first": func(r *rig) {
			r.follows()
			edited(r)
			r.next("update west 20 renewTime 0s for 15s")
			obj, err := r.carry()
			r.show()
			r.handed(obj, err).next("wait").facts(SyncStatus{InPlace: true})
		},
		"an edit right after our write is not overlooked, whichever is heard of first": func(r *rig) {
			r.follows()
			edited(r)
			r.next("update west 20 renewTime 0s for 15s")
			obj, err := r.carry()
			edited(r)
			r.handed(obj, err).next("read").answered().next("update west 20 renewTime 0s for 15s")
		},
		"nor a deletion": func(r *rig) {
			r.follows()
			edited(r)
			r.next("update west 20 renewTime 0s for 15s")
			obj, err := r.carry()
			deleted(r)
			r.handed(obj, err).next("read").answered().next("create west 20 renewTime 0s for 15s")
		},
		"nor one while it was read": func(r *rig) {
			r.follows()
			r.syncer.observeGone()
			r.next("read")
			obj, err := r.carry()
			deleted(r)
			r.handed(obj, err).next("read").answered().next("create west 20 renewTime 0s for 15s")
		},
		"nor that it was stripped of its marks: it is ours all the same": func(r *rig) {
			r.assign(assign.Follow, term("west", 20))
			r.next("read").answered().next("create west 20 renewTime 0s for 15s")
			obj, err := r.carry()
			r.edit(func(l *coordinationv1.Lease) { l.Labels, l.Annotations = nil, nil })
			r.syncer.observeGone()
			r.handed(obj, err).next("read").answered().next("update west 20 renewTime 0s for 15s")
		},
		"nor a new one after ours was removed": func(r *rig) {
			r.follows()
			r.assign(assign.Absent, lease.Term{})
			r.next("remove")
			_, err := r.carry()
			r.put(contentOf(renewedAt(0, term("west", 20))), testKey)
			r.show()
			r.handed(nil, err).next("read").answered().next("remove")
		},
	})
}

// The controller is told of facts once, when they change.
func TestNews(t *testing.T) {
	run(t, map[string]func(*rig){
		"a renewal is none": func(r *rig) {
			r.leads().next("wait " + firstRenewal(r).String())
			r.news(true)
			r.at(5).next("update east 20 renewTime 5s for 15s promise 20s").answered().next("wait 5s")
			r.news(false)
		},
		"the same again in the next term is": func(r *rig) {
			r.follows().news(true)
			r.assign(assign.Follow, term("south", 21))
			r.next("wait 500ms").at(1).next("update south 21 renewTime 1s for 15s").answered().next("wait").facts(SyncStatus{InPlace: true})
			r.news(true)
		},
		"a loss is, in each term": func(r *rig) {
			r.leads().at(15).next("wait")
			r.news(true)
			r.assign(assign.Lead, term("east", 21))
			r.next("wait").facts(SyncStatus{Lost: true})
			r.news(true)
		},
		"a refusal is, in each draining": func(r *rig) {
			r.follows().news(true)
			for _, since := range []float64{10, 20} {
				r.assign(assign.Follow, term("west", 20), minRenewTime(since))
				r.at(since).next("update west 20 renewTime "+wall(since).Sub(zero).String()+" for 15s").failed(errForbidden, pauseRefused)
				r.news(true)
			}
		},
		"other words for the same problem are not": func(r *rig) {
			r.follows()
			edited(r)
			r.next("update west 20 renewTime 0s for 15s").unanswered(false).news(true)
			r.next("read").unanswered(false).news(false)
		},
	})
}

func (r *rig) news(want bool) {
	r.t.Helper()
	if got := r.syncer.statusChanged(); got != want {
		r.t.Fatalf("news is %v, want %v; facts %+v", got, want, r.syncer.status)
	}
}

// Terms that began together do not stay together, and renewals neither drift nor are ever further apart than r.
func TestRenewalsAreSpread(t *testing.T) {
	const tenth = 500 * time.Millisecond
	buckets := map[time.Duration]int{}
	for _, ns := range namespaces(1000) {
		l := &leaseSyncer{namespace: ns, timings: Timings{Renew: 5 * second}}
		first := l.due(contentOf(renewedAt(0, term("east", 20))))
		if due := first.Sub(zero); due <= 0 || due > 5*second {
			t.Fatalf("%s is due after %v", ns, due)
		}
		buckets[first.Sub(zero)/tenth]++
		for late, want := range map[time.Duration]time.Duration{
			0: 5 * second, time.Microsecond: 5*second - time.Microsecond, 4 * second: second, 7 * second: 3 * second,
		} {
			renewed := contentOf(term("east", 20))
			renewed.RenewTime = first.Add(late)
			if next := l.due(renewed).Sub(renewed.RenewTime); next != want {
				t.Fatalf("%s, renewed %v late, is due again after %v, want %v", ns, late, next, want)
			}
		}
	}
	for b := range time.Duration(10) {
		if n := buckets[b]; n < 50 || n > 150 {
			t.Errorf("%d of 1000 are due in one tenth, from %v on", n, b*tenth)
		}
	}
}

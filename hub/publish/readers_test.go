package publish

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPublisherAsksReaders(t *testing.T) {
	playPublisher(t, `
a watch shows the release
	register r; led; revoke; released 0; see r released=20; released 20
no reader is registered: not released
	led; revoke; after 10s; released 0
the list is repeated until the readers answer: once a second at last
	register r; led; mark; revoke; after 10s; sent list 10..15
the revocation is unanswered, and found to be done: not released
	register r released=20; led; link loses update; revoke; after 5s; holder ns nobody; released 0
soon after the start, when a restore may have lost readers: not released
	after 20s; register r released=20; start; lead ns; after 14s; confirm; revoke; after 1s; released 0
a reader registers during a list, before the revocation: asked
	register r released=20; led; link delays list 1s; mark; await list; register late; link up; revoke; holder ns nobody;
	after 2s; released 0; see late released=20; released 20
the list is not answered: bounded by 3 s
	link swallows; mark; list-readers; took 3s
the hub stops during the list: ignored
	register r; link stops; list-readers; reports; readers 0
`)
}

// Releases count only if all readers that may act are known. After a restore of the member's etcd they may not be.
// Each sign of a restore suffices.
func TestReleasesCount(t *testing.T) {
	playPublisher(t, `
released before the revocation
	register r released=20; led; revoke; after 1s; released 20
an unanswered request may still create a leader's Lease: not released
	register r released=20; led; link loses create; deleted ns; after 1s; leads ns; link up; revoke; after 1s; released 0
a registration differs in the version that is known: not released
	register r released=20; led; see other released=20; twice other; revoke; after 1s; released 0
the revocation is answered by an older version than a watch of Leases showed: not released
	register r released=20; led; registers 20; lease b west 7 at 0; show b; back 10; delete b;
	link then update registers 20; revoke; after 1s; released 0
a sealed Lease has an earlier renewTime, in whatever version: not released
	register r released=20; led; backdate ns; gone ns; revoke; after 1s; released 0
a Lease without a seal has an earlier renewTime: an edit, released
	register r released=20; led; backdate ns unsealed; gone ns; revoke; after 1s; released 20
an object is back that was deleted: not released
	register r released=20; led; remember ns; deleted ns; leads ns; restore ns; gone ns; revoke; after 1s; released 0
a list of readers is older than the revocation: not released
	register r; led; revoke; back 1; register q; back 1; after 2s; see r released=20; released 0
D + ε after an older state: released
	register r released=20; led; back 1; after 6s; confirm; after 12s; confirm; after 5s; revoke; after 1s; released 20
an older state after the release, shown by the answer about another Lease: not released
	register r released=20; led; revoke; released 20; registers 20; shown other; back 10; follow b; after 0s; released 0
`)
}

// Readers are asked after a revocation, if their answers can count.
func TestWhenReadersAreAsked(t *testing.T) {
	const began = 1000 * second // from then on the member may have been restored
	longest := func(w *publisherTest, _ *leaseSyncer) {
		for i := range 20 {
			w.Readers.Observe(w.register(strconv.Itoa(i), fmt.Sprintf("for=%d", 41+i)))
		}
	}
	patient := func(_ *publisherTest, l *leaseSyncer) { l.timings.LongestPromise = 60 * second }
	poisoned := func(epoch int64) func(*publisherTest, *leaseSyncer) {
		return func(_ *publisherTest, l *leaseSyncer) { l.status.PoisonedEpoch = epoch }
	}
	pending := func(until time.Duration) func(*publisherTest, *leaseSyncer) {
		return func(_ *publisherTest, l *leaseSyncer) { l.createPendingUntil = began + until }
	}
	for name, test := range map[string]struct {
		at      time.Duration // after began
		change  func(*publisherTest, *leaseSyncer)
		revokes int64
		asked   bool
	}{
		"D + ε after a restore":                          {16 * second, nil, 20, true},
		"before the longest D of a policy has passed":    {59 * second, patient, 20, false},
		"before the longest registration + ε":            {60 * second, longest, 20, false},
		"after the longest registration + ε":             {61 * second, longest, 20, true},
		"the request revoked nothing":                    {99 * second, nil, 0, false},
		"a late request cannot create a Lease any more":  {99 * second, pending(99 * second), 20, true},
		"readers may have accepted a later term":         {99 * second, poisoned(21), 20, false},
		"readers may have accepted an edit of this term": {99 * second, poisoned(20), 20, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *publisherTest) {
				after(began)
				w.Readers.history.since = w.clock.Now().Boot
				w.play("revoke")
				l := w.syncer(keyOf("ns"))
				if test.change != nil {
					test.change(w, l)
				}
				after(test.at)
				w.handleAnswer(keyOf("ns"), step{action: read, revokes: test.revokes}, nil, nil)
				if asked := len(w.Readers.acks.questions) == 1; asked != test.asked {
					w.t.Errorf("asked: %v, want %v", asked, test.asked)
				}
			})
		})
	}
}

// An API server answers an update that changes nothing with the version that it was based on.
func TestAnUpdateThatChangesNothingShowsNoOlderState(t *testing.T) {
	obj := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "3"}}
	if (step{action: update, lease: obj, newestVersion: "7"}).showsOlderState(testKey, obj) {
		t.Error("it shows an older state")
	}
}

// A registration is removed ε after its end, by the largest ε of any Lease: its process may have as wrong a clock.
// Readers are listed every 15 s.
func TestPublisherRemovesExpiredRegistrations(t *testing.T) {
	playPublisher(t, `
expired: removed with its finalizer
	register r; start; follow b 1s; after 40s; unregistered r
confirmed every 5 s: stays
	start; follow b 1s; register r; after 5s; confirm; after 5s; confirm; after 5s; confirm; after 5s; confirm; after 5s;
	confirm; after 5s; confirm; after 5s; confirm; after 10s; registered r
confirmed between the deletion and the removal of its finalizer: keeps the finalizer
	register r; start; follow b 1s; link then delete confirm; after 31s; finalizer r
the list between the two is refused: stays
	register r; start; follow b 1s; link then delete link refuses list; after 32s; finalizer r
gone with its deletion: nothing is updated
	register r; start; follow b 1s; after 5s; mark; link then delete unregister r; after 27s; unregistered r; sent update 0
replaced by another one of that name: that one stays
	register r; start; follow b 1s; link then delete replace r; after 32s; finalizer r
the deletion is refused: stays
	register r; start; follow b 1s; link refuses delete; after 40s; finalizer r
no right to write: stays
	register r; start; follow b 1s; may-not; after 60s; registered r
the hub stops: stays
	see r; after 10m; stopping; mark; remove-expired; sent any 0
ends at 27 s, ε is 1 s: removed at 30 s
	start; follow b 1s; after 12s; see r; after 17999ms; registered r; after 2ms; unregistered r
ends at 27 s, that Lease has a smaller ε now: removed at 45 s
	start; follow b 5s; follow b 1s; after 12s; see r; after 32999ms; registered r; after 2ms; unregistered r
ends at 27 s, ε rises to 5 s where no Lease is assigned: removed at 45 s
	start; absent b 1s; absent b 5s; after 12s; see r; after 32999ms; registered r; after 2ms; unregistered r
ends at 27 s, no ε is known: removed at 90 s
	start; after 12s; see r; after 77999ms; registered r; after 2ms; unregistered r
`)
}

func TestSlowReadersAreReported(t *testing.T) {
	tooMany := strconv.Itoa(maxRegistrations + 1)
	playPublisher(t, `
readers that did not release a term: at most five
	register a; register b; register c; register d; register e; register f; led; revoke; after 1s; too-many; next;
	reported pods/a:ReaderSilent pods/b:ReaderSilent pods/c:ReaderSilent pods/d:ReaderSilent pods/e:ReaderSilent
too many registrations while a reader has not released a term: no reader is reported
	register r; led; revoke; after 1s; register-many `+tooMany+`; list-readers; too-many yes; next;
	reported /:TooManyReaders
too many registrations, listed twice: reported once
	register-many `+tooMany+`; list-readers; list-readers; reported /:TooManyReaders
`)
}

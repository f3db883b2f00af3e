package publish

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/seal"
)

func annotated(key, value string) func(*coordinationv1.Lease) {
	return func(l *coordinationv1.Lease) { l.Annotations[key] = value }
}

var otherKey = seal.Key("another key for tests of 32 byte")

// An edit extends a Lease if readers may act by it for longer than by what was sent.
func TestWhichEditsPromiseMore(t *testing.T) {
	play(t, `
the same deadline: no
	leads; edit uid=another; shown; at 1; update east 20 renewTime 0s
not labelled, so that no reader sees it: no
	leads; edit duration=3600 unlabelled; gone; at 1; read; ok; update east 20 renewTime 0s
expired: no
	lease east 20 at -20 unsealed; assign lead east 20; read; ok; wait; status Lost
another epoch, a shorter duration
	leads; edit epoch=19 duration=10; shown; at 1; update nobody 20 renewTime 1s promise 16s
a longer duration, what was sent has expired
	leads; edit duration=3600; shown; at 16; update nobody 20 renewTime 16s promise 31s
a longer duration, on hold
	leads; assign hold east 20; edit duration=3600; shown; at 1; update east 20 renewTime 0s promise 16s
a longer duration, on hold without the right to write: not repaired
	leads; assign hold east 20; edit duration=3600; shown; may not; at 1; wait
`)
}

// Only a seal makes a higher epoch one that the record has to rise above.
func TestWhatIsNewerThanTheRecord(t *testing.T) {
	play(t, `
an edited epoch: no
	follows; edit epoch=27; shown; remove; status InPlace PoisonedEpoch=27
a sealed Lease of an absurd epoch: no
	lease south 2000000000 at -2; assign follow west 20; read; ok; remove
`)
}

// A Lease of another hub or cluster is never overwritten. An edited own Lease is.
func TestWhoseALeaseIs(t *testing.T) {
	play(t, `
the own object, sealed for another cluster: that cluster's
	follows; lease west 20 at 0 of=west.fleet sameObject; shown; wait; status Problem=WrongCluster
the own object, edited to name another cluster: ours
	follows; edit cluster=west.fleet duration=10; shown; update west 20 renewTime 0s
not sealed, without a cluster: replaced
	lease west 20 at -2 unsealed cluster=; assign follow west 20; read; ok; update west 20 renewTime 0s
sealed for another cluster of that name: not ours
	leads; at 14; update east 20 renewTime 14s promise 29s; unanswered; at 29; read; ok;
	lease west 20 at 0 ofUID=another; shown; read; ok; wait; status Lost Failing=Unreachable
`)
	run(t, map[string]func(*rig){
		"another hub's: the message names the hub": func(r *rig) {
			r.put(contentOf(renewedAt(-2, term("west", 20)), by("another")), otherKey)
			r.assign(assign.Follow, term("west", 20))
			r.next("read").answered().next("wait")
			const want = "Lease ns/leasecast was written by the hub another: stop that hub, or delete the Lease if it is gone"
			if got := r.syncer.status.Message; got != want {
				r.t.Errorf("the message is %q, want %q", got, want)
			}
		},
	})
}

// An event with other content under a known version shows that one of them is out of date.
func TestEventThatContradictsWhatIsKnown(t *testing.T) {
	play(t, `
a Lease is shown before the answer that there is none: read
	assign follow west 20; read; carried; lease west 20 at 0; shown; answered; read; ok; wait; status InPlace
`)
	run(t, map[string]func(*rig){
		"so is another object of the version that a read found": func(r *rig) {
			r.assign(assign.Follow, term("west", 20))
			r.put(contentOf(renewedAt(0, term("west", 20))), testKey)
			found := r.next("read").there.DeepCopy()
			other := r.there.DeepCopy()
			other.UID = "another"
			r.syncer.observe(other)
			r.handed(found, nil).next("read")
		},
	})
	for name, change := range map[string]func(*coordinationv1.Lease){
		"another object":    func(l *coordinationv1.Lease) { l.UID = "another" },
		"other labels":      func(l *coordinationv1.Lease) { l.Labels["more"] = "of it" },
		"other annotations": annotated("more", "of it"),
	} {
		t.Run(name+" under the version that is known: read", func(t *testing.T) {
			r := newRig(t).follows()
			obj := r.there.DeepCopy()
			change(obj)
			r.syncer.observe(obj)
			r.next("read")
		})
	}
}

func TestWhenALeaseIsReadAgain(t *testing.T) {
	play(t, `
events in between: no later
	unwatched; lease west 7 at 0; assign follow west 7; read; ok; wait 2s; at 1; wait 1s; at 2; read
in place and shown: never
	leads; at 14; update east 20 renewTime 14s promise 29s; unanswered; at 29; read; ok; update east 20 renewTime 0s;
	unanswered; read; ok; wait 2s; assign follow east 20; wait; at 31; wait
lost, decided again early: not read
	leads; at 14; update east 20 renewTime 14s promise 29s; unanswered; at 29; read; ok; update east 20 renewTime 0s;
	unanswered; read; ok; wait 2s; at 30; update east 20 renewTime 0s
on hold without the right to write, another hub's Lease gone: soon
	lease west 20 at -2 by=another unsealed; shown; assign hold; wait; gone; may not; wait 100ms
on hold, the own Lease gone: never
	follows; assign hold west 20; deleted; wait
`)
}

func TestStatusAfterAnswers(t *testing.T) {
	play(t, `
changed when stored, and not assigned any more: removed at once
	assign follow west 20; read; ok; create west 20 renewTime 0s; assign absent; stored unlabelled; remove
gone before its update: read at once
	follows; edited; vanishes; update west 20 renewTime 0s; ok; read; ok; create west 20 renewTime 0s
a leader's Lease with a MinRenewTime forbidden: not refused
	assign lead east 20 first fresh=0; read; ok; create east 20 renewTime 0s promise 15s; forbidden;
	status MinRenewTime=0 Failing=Forbidden Problem=Unreachable
in place, then another role in that term: cleared
	follows; assign hold west 20; status none
the Lease is in doubt: its mark is not known
	assign follow west 20; read; ok; create west 20 renewTime 0s; ok; gone; read; mark unknown
another client's Lease: no mark is known
	lease west 20 at 0 stripped; assign follow west 20; unwatched; read; ok; wait 2s; mark unknown
the mark is found, then another term is assigned: changed
	follows; mark ours; assign follow south 21; changed; unchanged
the mark is found before any assignment: changed
	lease west 20 at 0; shown; wait; mark ours; assign follow south 21; changed
no mark is found before any assignment: changed
	lease west 20 at 0 by=; shown; wait; mark none; assign follow south 21; changed
no mark is found, then hold is assigned: changed
	lease east 20 at 0 by=; assign lead east 20; read; ok; update east 20 renewTime 0s promise 15s; mark none;
	assign hold east 20; changed; unchanged
`)
}

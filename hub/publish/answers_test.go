package publish

import (
	"cmp"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestAnswers(t *testing.T) {
	play(t, `
renewals forbidden for the patience: held against the leader
	leads; at 5; update east 20 renewTime 5s promise 20s; forbidden; at 9.9; update east 20 renewTime 5s promise 20s;
	forbidden; problem Unreachable; at 10; update east 20 renewTime 5s promise 20s; forbidden; problem Forbidden
the first write of a term forbidden for the patience: held against the leader
	assign lead east 20 first; read; ok; create east 20 renewTime 0s promise 15s; forbidden; at 9.9;
	create east 20 renewTime 0s; forbidden; problem Unreachable; at 10; create east 20 renewTime 0s; forbidden;
	problem Forbidden
renewals forbidden for a moment, as when an API server starts: no problem of the leader
	leads; at 5; update east 20 renewTime 5s promise 20s; forbidden; at 6; update east 20 renewTime 5s promise 20s;
	forbidden; problem Unreachable; at 7; update east 20 renewTime 5s promise 20s; ok; at 12;
	update east 20 renewTime 12s promise 27s; forbidden; problem Unreachable
unanswered, but done: read
	leads; at 5; update east 20 renewTime 5s promise 20s; unanswered but done; at 8; read; ok; wait 2s; status InPlace
a second conflict in a row: after a pause, because another client may write in a loop
	follows; edited; touched; update west 20 renewTime 0s; ok; read; ok; touched; update west 20 renewTime 0s; conflict;
	read; ok; update west 20 renewTime 0s; ok; edited; touched; update west 20 renewTime 0s; ok; read
gone before its update: read at once
	follows; edited; vanishes; update west 20 renewTime 0s; ok; read; ok; create west 20 renewTime 0s
a finalizer keeps a removed Lease: tried again after a pause
	lease west 2000000000 at -2 unsealed; assign follow west 20; remember; read; ok; remove; ok;
	create west 20 renewTime 0s; back; ok; read; ok; remove; ok; create west 20 renewTime 0s; back; conflict
no namespace: tried again after a pause
	assign follow west 20; read; ok; create west 20 renewTime 0s; no namespace;
	status Failing=NamespaceMissing Problem=NamespaceMissing; create west 20 renewTime 0s
drained because a renewal was forbidden: tried by a write that changes nothing
	leads; at 10; update east 20 renewTime 10s promise 25s; forbidden; assign hold east 20; update east 20 renewTime 0s;
	forbidden; at 11; update east 20 renewTime 0s; ok; wait; status none
a renewal was forbidden, held in another term: not tried
	leads; at 10; update east 20 renewTime 10s promise 25s; forbidden; assign hold east 21; wait
a renewal was forbidden, held until the deadline: not tried
	leads; at 10; update east 20 renewTime 10s promise 25s; forbidden; assign hold east 20; at 25; wait
`)
}

// A request whose answer does not certainly reject it may have been applied, or still be: a read precedes the next
// write. An API server that gave up waiting for its etcd, or a gateway for it, gives such an answer.
func TestWriteWithAnUnknownOutcomeIsRead(t *testing.T) {
	for name, test := range map[string]struct {
		err   error
		open  bool
		pause time.Duration // until it is tried again; 0: the pause after a rejection
	}{
		"the API server gave up waiting, 504": {apierrors.NewTimeoutError("request did not complete", 0), true, pauseSilent},
		"the hub has no right to it, 403":     {errForbidden, false, 0},
		"its credentials have expired, 401":   {apierrors.NewUnauthorized("expired"), false, pauseSilent},
		"the API server finds it invalid, 422": {apierrors.NewInvalid(schema.GroupKind{Kind: "Lease"}, "leasecast", nil),
			false, 0},
		"the API server cannot read it, 400":    {apierrors.NewBadRequest("no"), false, 0},
		"the API server does not serve it, 405": {apierrors.NewMethodNotSupported(leases, "update"), false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSyncerTest(t)
			for _, step := range []string{"leads", "at 5", "update east 20 renewTime 5s promise 20s"} {
				s.play(step)
			}
			s.answer(nil, test.err, cmp.Or(test.pause, pauseRefused))
			s.play("at 6")
			if test.open {
				s.play("read")
			} else {
				s.play("update east 20 renewTime 5s promise 20s")
			}
		})
	}
}

// An event during a request may be newer than the request's answer, and one of a known version may contradict it.
func TestWatchWhileARequestIsInFlight(t *testing.T) {
	play(t, `
a new Lease is shown before the answer that there is none
	assign follow west 20; read; carried; lease west 20 at 0; shown; answered; read; ok; wait; status InPlace
an edit right after the own write is shown before its answer
	follows; edited; update west 20 renewTime 0s; carried; edited; answered; read; ok; update west 20 renewTime 0s
the event of the own write comes before its answer
	follows; edited; update west 20 renewTime 0s; carried; shown; answered; wait; status InPlace
another object of the version that a read found: read
	lease west 20 at 0; assign follow west 20; read; carried; event object=another; answered; read
other labels under the version that is known: read
	follows; event label=x; read
other annotations under the version that is known: read
	follows; event annotation=x; read
another holder under the version that is known, as after a restore of etcd: read
	follows; event holder=another.client; read
`)
}

// The controller is called once for each change of the status.
func TestWhenTheStatusHasChanged(t *testing.T) {
	play(t, `
lost, in each term
	leads; at 15; wait; changed; assign lead east 21; wait; status Lost; changed
the mark is found before any assignment: changed
	lease west 20 at 0; shown; wait; mark ours; assign follow south 21; changed
`)
}

// The controller must know where Leases cannot be written, and where they can be again.
func TestFailedWrites(t *testing.T) {
	play(t, `
unanswered, then no Lease is assigned: not failing
	assign follow west 20; read; ok; create west 20 renewTime 0s; unanswered; assign absent; read; ok; wait;
	status InPlace
unanswered again and again: the pauses get longer until one succeeds
	assign follow west 20; `+strings.Repeat("read; ok; create west 20 renewTime 0s; unanswered; ", fastRetries)+`read; ok;
	create west 20 renewTime 0s; unanswered long; read; ok; create west 20 renewTime 0s; ok; wait; edited;
	update west 20 renewTime 0s; unanswered
`)
}

func TestWritesThatTheMemberChanges(t *testing.T) {
	const creates = "\tassign follow west 20; read; ok; create west 20 renewTime 0s;"
	play(t, `
no Lease was assigned before it was stored: removed at once
`+creates+` assign absent; stored 0.1 unlabelled; remove
stored as sent: the pauses begin again
`+creates+` stored 0.1 uid=; at 0.1; update west 20 renewTime 100ms;
	ok; wait; status InPlace; edited; update west 20 renewTime 100ms; stored 0.1 uid=
the old Lease is stored: it is sealed, but not what was sent
	follows; remember; assign follow west 20 fresh=10; at 10; update west 20 renewTime 10s; stored 0.1 old
changed when stored: reported, with what to do
`+creates+` stored 0.1 uid=; status Failing=Unwritable Problem=Unwritable; wait 100ms;
	status Failing=Unwritable Problem=Unwritable; message Lease ns/leasecast; message admission webhook;
	message leasecast.dev/managed
changed again and again: the pauses double up to 2 s, whatever a watch shows
`+creates+` stored 0.1 unlabelled; shown; at 0.05; wait 50ms; at 0.1; update west 20 renewTime 100ms;
	stored 0.2 unlabelled; shown; at 0.2; wait 100ms; at 0.3; update west 20 renewTime 300ms; stored 0.4 unlabelled;
	at 0.7; update west 20 renewTime 700ms; stored 0.8 unlabelled; at 1.5; update west 20 renewTime 1.5s;
	stored 1.6 unlabelled; at 3.1; update west 20 renewTime 3.1s; stored 2 unlabelled; at 5.1;
	update west 20 renewTime 5.1s; stored 2 unlabelled
`)
}

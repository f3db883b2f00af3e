package controller

import (
	"context"
	"errors"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

// electionKeys name the Leases of the hub's election, one for each installation.
var electionKeys = [2]types.NamespacedName{
	{Namespace: "leasecast", Name: "leasecast-hub"}, {Namespace: "platform", Name: "leasecast-hub"},
}

func (r *replica) election() types.NamespacedName { return electionKeys[r.installation] }

// hubID is the mark of the replica's installation.
func (r *replica) hubID() string { return simHub + "/" + r.election().Namespace }

// electionLock does what client-go's LeaseLock does, but for two things. It never changes a Lease that it was answered:
// that is the server's own. And it returns no JSON: the elector compares records by inSeconds.
type electionLock struct {
	resourcelock.Interface // has the rest, which nothing uses
	leases                 coordinationclient.LeaseInterface
	key                    types.NamespacedName
	identity               string
	lease                  *coordinationv1.Lease // as last read or written
}

func (l *electionLock) Identity() string { return l.identity }

func (l *electionLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	found, err := l.leases.Get(ctx, l.key.Name, metav1.GetOptions{})
	if err != nil {
		return nil, nil, err
	}
	l.lease = found
	return resourcelock.LeaseSpecToLeaderElectionRecord(&found.Spec), nil, nil
}

func (l *electionLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) (err error) {
	obj := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: l.key.Namespace, Name: l.key.Name}}
	obj.Spec = resourcelock.LeaderElectionRecordToLeaseSpec(&r)
	l.lease, err = l.leases.Create(ctx, obj, metav1.CreateOptions{})
	return err
}

func (l *electionLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if l.lease == nil { // a creation had no answer
		return errors.New("the election's Lease was neither read nor created")
	}
	obj := new(*l.lease)
	obj.Spec = resourcelock.LeaderElectionRecordToLeaseSpec(&r)
	stored, err := l.leases.Update(ctx, obj, metav1.UpdateOptions{})
	if err == nil {
		l.lease = stored
	}
	return err
}

// inSeconds returns a record as its JSON has it, with times in whole seconds.
func inSeconds(r resourcelock.LeaderElectionRecord) resourcelock.LeaderElectionRecord {
	r.AcquireTime, r.RenewTime = metav1.Unix(r.AcquireTime.Unix(), 0), metav1.Unix(r.RenewTime.Unix(), 0)
	return r
}

// elector does with the real tenure's lock what client-go's elector does, in the same
// order: update at once while the last record is still valid, or else read and judge.
type elector struct {
	r          *replica
	lock       resourcelock.Interface
	observed   resourcelock.LeaderElectionRecord
	read       resourcelock.LeaderElectionRecord // inSeconds, as it was last read
	observedAt time.Duration                     // boot
}

func (e *elector) leads() bool { return e.observed.HolderIdentity == e.lock.Identity() }

func (e *elector) valid(boot time.Duration) bool {
	return boot < e.observedAt+time.Duration(e.observed.LeaseDurationSeconds)*time.Second
}

func (e *elector) note(r resourcelock.LeaderElectionRecord) {
	e.observed, e.observedAt = r, e.r.host.read(e.r.w.now).Boot
}

// try acquires or renews the election.
func (e *elector) try() bool {
	ctx, now := e.r.ctx, e.r.Now()
	mine := resourcelock.LeaderElectionRecord{
		HolderIdentity:       e.lock.Identity(),
		LeaseDurationSeconds: int(e.r.w.h / time.Second),
		RenewTime:            metav1.NewTime(now.Wall),
		AcquireTime:          metav1.NewTime(now.Wall),
	}
	if e.leads() && e.valid(now.Boot) {
		mine.AcquireTime, mine.LeaderTransitions = e.observed.AcquireTime, e.observed.LeaderTransitions
		if e.lock.Update(ctx, mine) == nil {
			e.note(mine)
			return true
		}
	}
	old, _, err := e.lock.Get(ctx)
	if err != nil && apierrors.IsNotFound(err) {
		if e.lock.Create(ctx, mine) != nil {
			return false
		}
		e.note(mine)
		return true
	}
	if err != nil {
		return false
	}
	// client-go compares whole seconds only, by which an election of one second would change hands among healthy replicas.
	if read := inSeconds(*old); e.read != read || e.r.w.h == time.Second && !old.RenewTime.Equal(&e.observed.RenewTime) {
		e.note(*old)
		e.read = read
	}
	if old.HolderIdentity != "" && e.valid(now.Boot) && !e.leads() {
		return false
	}
	if e.leads() {
		mine.AcquireTime, mine.LeaderTransitions = old.AcquireTime, old.LeaderTransitions
	} else {
		mine.LeaderTransitions = old.LeaderTransitions + 1
	}
	if e.lock.Update(ctx, mine) != nil {
		return false
	}
	e.note(mine)
	return true
}

// release gives the election up, if it is held.
func (e *elector) release() {
	ctx := e.r.ctx
	old, _, err := e.lock.Get(ctx)
	if err != nil || !e.leads() {
		return
	}
	now := metav1.NewTime(e.r.Now().Wall)
	e.r.link(&e.r.w.hub.machine).noAnswers = e.r.deaf
	_ = e.lock.Update(ctx, resourcelock.LeaderElectionRecord{
		LeaderTransitions: old.LeaderTransitions, LeaseDurationSeconds: 1, RenewTime: now, AcquireTime: now,
	})
}

// taskClock lets a candidate wait for the end of a tenure. The running task sleeps when
// it makes a timer, which has fired when it gets it; or never, if the process has ended.
type taskClock struct {
	clock.WithTicker
	p *proc
}

func (c taskClock) Now() time.Time { return c.p.host.read(c.p.w.now).Wall }

func (c taskClock) NewTimer(d time.Duration) clock.Timer {
	t := firedTimer{fired: make(chan time.Time, 1)}
	if c.p.sleep(d) {
		t.fired <- c.Now()
	}
	return t
}

type firedTimer struct {
	clock.Timer
	fired chan time.Time
}

func (t firedTimer) C() <-chan time.Time { return t.fired }

func (firedTimer) Stop() bool { return false }

// loseElection deletes the Leases of the hub's elections.
func (w *world) loseElection() {
	for _, key := range electionKeys {
		if w.hub.leases[key] != nil {
			_ = w.hub.remove(key, nil)
		}
	}
}

// editElection makes the Lease of the hub's election say something odd. What says,
// without being odd, that the last tenure ended earlier than it did is not among it: it
// is as good as a restored hub, and only Leases in members can tell.
func (w *world) editElection() {
	key := electionKeys[w.rng.IntN(w.installations)]
	obj := w.hub.leases[key]
	if obj == nil || obj.Spec.RenewTime == nil {
		return
	}
	obj = obj.DeepCopy()
	switch w.rng.IntN(6) {
	case 0:
		obj.Spec.HolderIdentity = ptr.To("")
	case 1:
		obj.Spec.HolderIdentity, obj.Spec.LeaseDurationSeconds = nil, nil
	case 2:
		obj.Spec.RenewTime = nil
	case 3:
		obj.Spec.LeaseDurationSeconds = ptr.To[int32](0)
	case 4:
		obj.Spec.HolderIdentity = ptr.To("somebody")
	case 5:
		obj.Spec.RenewTime.Time = obj.Spec.RenewTime.Add(w.between(0, time.Minute))
	}
	w.hub.put(key, obj, obj.UID)
}

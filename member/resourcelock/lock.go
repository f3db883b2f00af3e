// Package resourcelock restricts the usual election between the replicas of a controller to the leading cluster. It
// decorates the lock of that election: a Pod leads if it is elected *and* its cluster leads.
//
//	m, err := member.New(cfg, member.Options{Namespaces: []string{"shop"}})
//	...
//	running, stop := context.WithCancel(context.Background()) // goes on until the manager has stopped
//	left := make(chan error, 1)
//	go func() { left <- m.Start(running) }()
//	defer func() { stop(); <-left }() // a registered Member takes its registration along
//	lock, ctx, done := resourcelock.New(ctx, m, "shop", leaseLock) // the lock of client-go
//	defer done()
//	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
//		LeaderElection: true, LeaderElectionResourceLockInterface: lock, LeaderElectionReleaseOnCancel: true})
//	...
//	err = mgr.Start(ctx) // the context that New has returned
//
// Nothing else in a controller has to change. A Pod in a follower is no candidate: each of its tries is refused at
// once, without a write. The elector tries again after its retry period. The elector logs each refusal as an error. A
// manager whose context has ended stops, as after a lost election. So its process ends, and the next process is a
// candidate again.
//
// # What is promised
//
// The context ends when the term in which the lock was taken ends, as a context of [member.Member.Context] does. An
// elector alone would go on until its renew deadline has passed, for 10 s by default. So run everything that acts on
// the context. From then on the lock refuses to be renewed, and can only be released. A process that is paused between
// its check and its act acts late when it wakes, as with every election.
//
// So the hub has nothing to wait for: the lock's stop time is zero. Do not name it in a policy's leaderElectionLocks.
// They make every change wait for an elector that learns of the end of a term by refusals.
//
// A manager that is asked to stop renews the lock until its work has finished, so that no other replica begins before.
// A lock can be renewed in its term only. So run the [member.Member] beside the manager, and stop it after done: in the
// manager it would end the term first. A registered Member does not release the term before done is called. Call it
// when all work has finished.
package resourcelock

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/leasecast/leasecast/member"
)

// Lock is a lock that can be held only where the cluster leads. It serves one election: it is not taken again after its
// term is over. Make another for the next election.
type Lock struct {
	resourcelock.Interface
	leader    member.Leader
	namespace string
	ctx       context.Context // for the work under the lock
	end       context.CancelCauseFunc

	mu     sync.Mutex
	term   context.Context    // of the term in which the lock was taken; nil: not taken
	finish context.CancelFunc // reports that the work in that term has finished
}

var _ resourcelock.Interface = (*Lock)(nil)

// New decorates a lock, and returns the context for the election and for everything that acts under the lock. When ctx
// ends, the work ends, and a lock that is held can still be renewed while the work stops. done ends both. Call it when
// everything has stopped.
func New(
	ctx context.Context, l member.Leader, namespace string, inner resourcelock.Interface,
) (lock *Lock, work context.Context, done func()) {
	work, end := context.WithCancelCause(ctx)
	lock = &Lock{Interface: inner, leader: l, namespace: namespace, ctx: work, end: end}
	return lock, work, lock.done
}

func (l *Lock) done() {
	l.end(nil) // so that no term is taken from here on
	l.mu.Lock()
	finish := l.finish
	l.mu.Unlock()
	if finish != nil {
		finish()
	}
}

// Create takes a lock that does not exist yet, if this cluster leads.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.take(ctx, func(ctx context.Context) error { return l.Interface.Create(ctx, record) })
}

// Update takes, renews or releases the lock. A release is allowed in every cluster.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" {
		return l.Interface.Update(ctx, record)
	}
	return l.take(ctx, func(ctx context.Context) error { return l.Interface.Update(ctx, record) })
}

// take writes the lock in the current term, and fails if the term is over when the answer arrives.
func (l *Lock) take(ctx context.Context, write func(context.Context) error) error {
	work, finish, err := l.present(ctx)
	if err != nil {
		return fmt.Errorf("lock %s: %w", l.Describe(), err)
	}
	request, cancel := context.WithCancel(work)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	err = write(request)
	if over := member.Check(work); over != nil {
		err = fmt.Errorf("lock %s: %w", l.Describe(), errors.Join(over, err))
	}
	if err != nil {
		finish()
		return err
	}
	return l.taken(work, finish)
}

// present returns the context of the term in which the lock was taken, or else of one in which it may be taken. A lock
// is not renewed in a later term. The check uses the term itself, because the work's context ends a moment after the
// term.
func (l *Lock) present(ctx context.Context) (work context.Context, finish context.CancelFunc, err error) {
	l.mu.Lock()
	term := l.term
	l.mu.Unlock()
	if term != nil {
		return term, func() {}, member.Check(term) // done reports when the work has finished
	}
	if l.ctx.Err() != nil {
		return nil, nil, context.Cause(l.ctx)
	}
	// The work under the lock may go on after ctx, and the term is not released before that.
	return l.leader.Context(context.WithoutCancel(ctx), l.namespace)
}

// taken keeps the term in which the lock was taken first until done is called.
func (l *Lock) taken(work context.Context, finish context.CancelFunc) error {
	l.mu.Lock()
	ended, first := l.ctx.Err() != nil, l.term == nil
	if !ended && first {
		l.term, l.finish = work, finish
	}
	l.mu.Unlock()
	switch {
	case ended && first: // while the lock was written
		finish()
		return fmt.Errorf("lock %s: %w", l.Describe(), context.Cause(l.ctx))
	case first:
		context.AfterFunc(work, func() { l.end(context.Cause(work)) })
	default:
		finish()
	}
	return nil
}

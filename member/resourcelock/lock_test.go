package resourcelock_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection"
	clientlock "k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/membertest"
	"github.com/leasecast/leasecast/member/resourcelock"
)

const ns = "shop"

// server holds the record of a lock.
type server struct {
	mu     sync.Mutex
	record *clientlock.LeaderElectionRecord
	writes int
	fails  error
	during func() // while a write is under way
}

// inner is the lock of one candidate.
type inner struct {
	*server
	identity string
}

func (i inner) Get(context.Context) (*clientlock.LeaderElectionRecord, []byte, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.record == nil {
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, "lock")
	}
	record := *i.record
	return &record, []byte(record.HolderIdentity + record.RenewTime.String()), nil
}

func (i inner) write(ctx context.Context, record clientlock.LeaderElectionRecord) error {
	if i.during != nil {
		i.during()
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.writes++
	if err := errors.Join(i.fails, ctx.Err()); err != nil {
		return err
	}
	i.record = &record
	return nil
}

func (i inner) Create(ctx context.Context, record clientlock.LeaderElectionRecord) error {
	return i.write(ctx, record)
}

func (i inner) Update(ctx context.Context, record clientlock.LeaderElectionRecord) error {
	return i.write(ctx, record)
}

func (i inner) RecordEvent(string) {}
func (i inner) Identity() string   { return i.identity }
func (i inner) Describe() string   { return "shop/lock of " + i.identity }

var mine = clientlock.LeaderElectionRecord{HolderIdentity: "pod-1"}

func TestTheLockIsTakenOnlyWhereTheClusterLeads(t *testing.T) {
	broken := errors.New("broken")
	cases := map[string]struct {
		happens func(f *membertest.Fake, s *server, lock *resourcelock.Lock, done func())
		write   clientlock.LeaderElectionRecord
		want    error
		writes  int // that reach the server, by the last of all tries
	}{
		"in a leader": {
			happens: func(f *membertest.Fake, _ *server, _ *resourcelock.Lock, _ func()) { f.Promote(ns) },
			write:   mine,
			writes:  1,
		},
		"not in a follower": {
			happens: func(f *membertest.Fake, _ *server, _ *resourcelock.Lock, _ func()) { f.Demote(ns) },
			write:   mine,
			want:    member.ErrNotLeader,
		},
		"not without a Lease": {func(*membertest.Fake, *server, *resourcelock.Lock, func()) {}, mine, member.ErrNotLeader, 0},
		"not after the term has run out": {func(f *membertest.Fake, _ *server, _ *resourcelock.Lock, _ func()) {
			f.Promote(ns)
			f.Expire()
		}, mine, member.ErrNotLeader, 0},
		"not if the term ends before the answer": {func(f *membertest.Fake, s *server, _ *resourcelock.Lock, _ func()) {
			f.Promote(ns)
			s.during = func() { f.Demote(ns) }
		}, mine, member.ErrLost, 1},
		"and is refused where the server refuses it": {func(f *membertest.Fake, s *server, _ *resourcelock.Lock, _ func()) {
			f.Promote(ns)
			s.fails = broken
		}, mine, broken, 1},
		"and not again in a later term": {func(f *membertest.Fake, s *server, lock *resourcelock.Lock, _ func()) {
			f.Promote(ns)
			_ = lock.Create(context.Background(), mine)
			f.Demote(ns)
			f.Promote(ns)
			synctest.Wait()
			s.writes = 0
		}, mine, member.ErrLost, 0},
		"and not after done": {func(f *membertest.Fake, _ *server, _ *resourcelock.Lock, done func()) {
			f.Promote(ns)
			done()
		}, mine, context.Canceled, 0},
		"and not if the work ends before the answer": {
			happens: func(f *membertest.Fake, s *server, _ *resourcelock.Lock, done func()) {
				f.Promote(ns)
				s.during = done
			},
			write:  mine,
			want:   context.Canceled,
			writes: 1,
		},
		"but it is released in a follower": {
			happens: func(f *membertest.Fake, _ *server, _ *resourcelock.Lock, _ func()) { f.Demote(ns) },
			write:   clientlock.LeaderElectionRecord{},
			writes:  1,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, s := membertest.New(), &server{}
				lock, _, done := resourcelock.New(t.Context(), f, ns, inner{s, "pod-1"})
				defer done()
				tc.happens(f, s, lock, done)
				if err := lock.Update(t.Context(), tc.write); !errors.Is(err, tc.want) {
					t.Errorf("Update: %v, want %v", err, tc.want)
				}
				if s.writes != tc.writes {
					t.Errorf("%d writes, want %d", s.writes, tc.writes)
				}
			})
		})
	}
}

func TestTheContextEndsWithTheTermInWhichTheLockWasTaken(t *testing.T) {
	cases := map[string]struct {
		takes, fails bool
		ends         func(f *membertest.Fake)
		want         bool
	}{
		"when the term is lost":  {true, false, func(f *membertest.Fake) { f.Demote(ns) }, true},
		"when it runs out":       {true, false, func(f *membertest.Fake) { f.Expire() }, true},
		"when the Lease is gone": {true, false, func(f *membertest.Fake) { f.DeleteLease(ns) }, true},
		"not while it is renewed": {
			takes: true,
			ends:  func(f *membertest.Fake) { f.Advance(time.Second); f.Renew(ns) },
		},
		"not for one who is no candidate yet": {false, false, func(f *membertest.Fake) { f.Demote(ns) }, false},
		"not for one who was not elected":     {true, true, func(f *membertest.Fake) { f.Demote(ns) }, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, s := membertest.New(), &server{}
				lock, ctx, done := resourcelock.New(t.Context(), f, ns, inner{s, "pod-1"})
				defer done()
				f.Promote(ns)
				if tc.fails {
					s.fails = errors.New("another is faster")
				}
				if tc.takes {
					_ = lock.Create(t.Context(), mine)
				}
				tc.ends(f)
				synctest.Wait()
				if got := ctx.Err() != nil; got != tc.want {
					t.Errorf("the context has ended = %v (%v), want %v", got, context.Cause(ctx), tc.want)
				}
			})
		})
	}
}

// The end of a term reaches the context of the work a moment later, in another goroutine. A renewal in that moment must
// not be made in the next term.
func TestTheLockIsNotRenewedInTheNextTerm(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // the other goroutine comes late
	for range 100 {
		f, s := membertest.New(), &server{}
		lock, _, done := resourcelock.New(t.Context(), f, ns, inner{s, "pod-1"})
		f.Promote(ns)
		if err := lock.Create(t.Context(), mine); err != nil {
			t.Fatal(err)
		}
		f.Demote(ns)
		f.Promote(ns)
		if err := lock.Update(t.Context(), mine); !errors.Is(err, member.ErrLost) {
			t.Fatalf("Update: %v, want %v", err, member.ErrLost)
		}
		if s.writes != 1 {
			t.Fatalf("%d writes, want that of the first term alone", s.writes)
		}
		done()
	}
}

// The elector of client-go, with a lock in a cluster that does not lead at first.
func TestAnElectionWaitsForTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := membertest.New(), &server{}
		f.Demote(ns)
		lock, ctx, done := resourcelock.New(t.Context(), f, ns, inner{s, "pod-1"})
		defer done()
		led, stopped := make(chan struct{}), make(chan struct{})
		go leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock:            lock,
			LeaseDuration:   15 * time.Second,
			RenewDeadline:   10 * time.Second,
			RetryPeriod:     2 * time.Second,
			ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { close(led) },
				OnStoppedLeading: func() { close(stopped) },
			},
		})
		<-time.After(time.Minute)
		if s.writes > 0 {
			t.Errorf("%d writes in a follower, want none", s.writes)
		}
		f.Promote(ns)
		<-led
		f.Demote(ns)
		began := time.Now()
		<-stopped
		if took := time.Since(began); took > 0 {
			t.Errorf("the election was given up after %v, want at once", took)
		}
		if s.record.HolderIdentity != "" {
			t.Errorf("%s still holds the lock, want it to be released", s.record.HolderIdentity)
		}
	})
}

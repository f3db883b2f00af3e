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
	clientlock "k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/internal/musttest"
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

// candidate has a lock in a cluster of its own.
type candidate struct {
	*membertest.Fake
	*server
	lock *resourcelock.Lock
	ctx  context.Context
	done func()
	stop func() // asks the program to stop
}

func newCandidate(t *testing.T) *candidate {
	c := &candidate{Fake: membertest.New(), server: &server{}}
	ctx, stop := context.WithCancel(t.Context())
	c.stop = stop
	c.lock, c.ctx, c.done = resourcelock.New(ctx, c, ns, inner{c.server, "pod-1"})
	t.Cleanup(c.done)
	return c
}

// each runs f for every row with a candidate, in a bubble of its own.
func each[T any](t *testing.T, rows map[string]T, f func(t *testing.T, c *candidate, row T)) {
	t.Helper()
	musttest.Each(t, rows, func(t *testing.T, row T) { f(t, newCandidate(t), row) })
}

func TestTheLockIsTakenOnlyWhereTheClusterLeads(t *testing.T) {
	broken, released := errors.New("broken"), clientlock.LeaderElectionRecord{}
	take := func(c *candidate) {
		c.Promote(ns)
		_ = c.lock.Create(context.Background(), mine)
	}
	type row struct {
		happens func(c *candidate)
		write   clientlock.LeaderElectionRecord
		want    error
		writes  int // that reach the server, by the last of all tries
	}
	each(t, map[string]row{
		"a leader":                    {func(c *candidate) { c.Promote(ns) }, mine, nil, 1},
		"a follower":                  {func(c *candidate) { c.Demote(ns) }, mine, member.ErrNotLeader, 0},
		"a follower releases it":      {func(c *candidate) { c.Demote(ns) }, released, nil, 1},
		"no Lease":                    {func(*candidate) {}, mine, member.ErrNotLeader, 0},
		"the term has run out":        {func(c *candidate) { c.Promote(ns); c.Expire() }, mine, member.ErrNotLeader, 0},
		"done was called":             {func(c *candidate) { c.Promote(ns); c.done() }, mine, context.Canceled, 0},
		"the server refuses it":       {func(c *candidate) { c.Promote(ns); c.fails = broken }, mine, broken, 1},
		"done before the answer":      {func(c *candidate) { c.Promote(ns); c.during = c.done }, mine, context.Canceled, 1},
		"stopping before it is taken": {func(c *candidate) { c.Promote(ns); c.stop() }, mine, context.Canceled, 0},
		"stopping while it is held":   {func(c *candidate) { take(c); c.stop() }, mine, nil, 2},
		"stopping, and the term ends": {func(c *candidate) { take(c); c.stop(); c.Demote(ns) }, mine, member.ErrLost, 1},
		"done while it is held":       {func(c *candidate) { take(c); c.done() }, mine, context.Canceled, 1},
		"the term ends before the answer": {func(c *candidate) {
			c.Promote(ns)
			c.during = func() { c.Demote(ns) }
		}, mine, member.ErrLost, 1},
		"a later term": {func(c *candidate) {
			take(c)
			c.Demote(ns)
			c.Promote(ns)
			synctest.Wait()
			c.writes = 0
		}, mine, member.ErrLost, 0},
	}, func(t *testing.T, c *candidate, row row) {
		row.happens(c)
		if err := c.lock.Update(t.Context(), row.write); !errors.Is(err, row.want) || c.writes != row.writes {
			t.Errorf("Update: %v after %d writes, want %v after %d", err, c.writes, row.want, row.writes)
		}
	})
}

func TestTheContextEndsWithTheTermInWhichTheLockWasTaken(t *testing.T) {
	type row struct {
		takes, fails bool
		happens      func(c *candidate)
		ends         bool
	}
	each(t, map[string]row{
		"the term is lost":       {true, false, func(c *candidate) { c.Demote(ns) }, true},
		"it runs out":            {true, false, func(c *candidate) { c.Expire() }, true},
		"the Lease is gone":      {true, false, func(c *candidate) { c.DeleteLease(ns) }, true},
		"it is renewed":          {true, false, func(c *candidate) { c.Advance(time.Second); c.Renew(ns) }, false},
		"it is no candidate yet": {false, false, func(c *candidate) { c.Demote(ns) }, false},
		"another was elected":    {true, true, func(c *candidate) { c.Demote(ns) }, false},
	}, func(t *testing.T, c *candidate, row row) {
		c.Promote(ns)
		if row.fails {
			c.fails = errors.New("another is faster")
		}
		if row.takes {
			_ = c.lock.Create(t.Context(), mine)
		}
		row.happens(c)
		synctest.Wait()
		if got := c.ctx.Err() != nil; got != row.ends {
			t.Errorf("the context has ended = %v (%v), want %v", got, context.Cause(c.ctx), row.ends)
		}
	})
}

// The end of a term reaches the context of the work a moment later, in another goroutine. A renewal in that moment must
// not be made in the next term.
func TestTheLockIsNotRenewedInTheNextTerm(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // the other goroutine comes late
	for range 100 {
		c := newCandidate(t)
		c.Promote(ns)
		musttest.Do(t, c.lock.Create(t.Context(), mine))
		c.Demote(ns)
		c.Promote(ns)
		if err := c.lock.Update(t.Context(), mine); !errors.Is(err, member.ErrLost) || c.writes != 1 {
			t.Fatalf("Update: %v after %d writes, want %v after that of the first term", err, c.writes, member.ErrLost)
		}
		c.done()
	}
}

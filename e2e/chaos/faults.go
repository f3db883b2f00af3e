package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/process"
	"github.com/leasecast/leasecast/e2e/proxy"
)

const (
	// gonePatience bounds the wait for a deleted namespace to go, and for an API server that was started again.
	gonePatience = time.Minute
	// effectPatience bounds the wait for an effect that other faults may prevent.
	effectPatience = 3 * time.Second
)

// Applied is a fault that was played, on the boot clock.
type Applied struct {
	Fault
	Began, Ended time.Duration
	// Effect describes what the fault did, apart from what readers did. Took reports whether it had the effect of its
	// kind.
	Effect string
	Took   bool
}

func (a *Applied) saw(took bool, format string, args ...any) {
	a.Took, a.Effect = took, fmt.Sprintf(format, args...)
}

// insist repeats one of the drill's own requests until it succeeds. No fault of the schedule holds that API server, but
// on a busy machine etcd may take longer than the API server waits. The request must be repeatable.
func insist(ctx context.Context, request func(context.Context) error) {
	must.Do(must.Await(ctx, gonePatience, "the API server does what the drill asks for", request))
}

// await waits for an effect that other faults may prevent.
func await(ctx context.Context, met func(context.Context) error) error {
	return must.Await(ctx, effectPatience, "it has its effect", met)
}

func (st *testbed) pauseProcess(ctx context.Context, a *Applied) {
	p := must.Get(st.keepers[a.Target].Pause())
	if p == nil {
		a.saw(false, "there was no process")
		return
	}
	a.saw(true, "process %d was paused", p.PID())
	must.Do(process.Pass(ctx, a.For))
	if err := p.Resume(); !errors.Is(err, process.ErrEnded) { // it may have been killed while it was paused
		must.Do(err)
	}
}

func (st *testbed) killProcess(ctx context.Context, a *Applied) {
	k := st.keepers[a.Target]
	was := k.Current().PID()
	alive := must.Get(k.Kill(ctx, a.For))
	must.Do(must.Await(ctx, gonePatience, "the next process runs", func(context.Context) error {
		if k.Current().PID() == was {
			return errors.New("there is none")
		}
		return k.Check()
	}))
	a.saw(alive, "process %d became %d", was, k.Current().PID())
}

// sleepThrough pauses a reader while its cluster loses what it leads. The link of the cluster goes dead, and the reader
// resumes when the successors act.
func (st *testbed) sleepThrough(ctx context.Context, a *Applied) {
	link := st.server(a.Target).Proxy()
	link.BlackHole()
	defer link.Heal()
	st.pauseProcess(ctx, a)
}

func apiServer(p fleet.PIDs) int { return p.APIServer }
func etcd(p fleet.PIDs) int      { return p.Etcd }

// pausing pauses an API server or its etcd.
func pausing(pid func(fleet.PIDs) int, pause, resume func(*fleet.Server) error) player {
	return func(st *testbed, ctx context.Context, a *Applied) {
		s := st.server(a.Target)
		must.Do(pause(s))
		a.saw(true, "process %d was paused", pid(s.PIDs()))
		must.Do(process.Pass(ctx, a.For))
		must.Do(resume(s))
	}
}

// killing kills an API server or its etcd, and restarts it after a while.
func killing(pid func(fleet.PIDs) int, kill func(*fleet.Server) error,
	restart func(*fleet.Server, context.Context) error) player {
	return func(st *testbed, ctx context.Context, a *Applied) {
		s := st.server(a.Target)
		was := pid(s.PIDs())
		must.Do(kill(s))
		must.Do(process.Pass(ctx, a.For))
		must.Do(restart(s, ctx))
		a.saw(was != pid(s.PIDs()), "process %d became %d", was, pid(s.PIDs()))
		st.version(ctx, a.Target) // the API server has found etcd again
	}
}

// restore restores etcd, after a while, to what it holds now.
func (st *testbed) restore(ctx context.Context, a *Applied) {
	s := st.server(a.Target)
	snapshot := must.Get(s.Snapshot(ctx))
	must.Do(process.Pass(ctx, a.For))
	was := st.version(ctx, a.Target)
	must.Do(s.Restore(ctx, snapshot))
	a.saw(true, "versions were at %d and are at %d after the start", was, st.version(ctx, a.Target))
	must.Do(snapshot.Discard())
}

// version asks etcd for its latest resourceVersion.
func (st *testbed) version(ctx context.Context, server string) uint64 {
	list := &corev1.NamespaceList{}
	insist(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		return st.client(server).List(ctx, list)
	})
	return must.Get(strconv.ParseUint(list.ResourceVersion, 10, 64))
}

// halfOpen kills the API server behind a link that hides it, and restarts it. The hub's connections stay open and lead
// nowhere.
func (st *testbed) halfOpen(ctx context.Context, a *Applied) {
	s := st.server(a.Target)
	link := s.Proxy()
	link.CutFromMember()
	defer link.Heal()
	before := link.Stats().Connections
	must.Do(s.Kill())
	after := link.Stats().Connections
	a.saw(after > 0, "the hub had %d connections before the end of the server, and %d after it", before, after)
	must.Do(process.Pass(ctx, a.For))
	must.Do(s.Restart(ctx))
}

// breaking breaks the link between the hub and a server.
func breaking(set func(*proxy.Proxy)) player {
	return func(st *testbed, ctx context.Context, a *Applied) {
		link := st.server(a.Target).Proxy()
		defer link.Heal()
		before := link.Stats().Connections
		var lost, kept int64
		set(link)
		must.Do(must.Stay(ctx, a.For, "the link is broken", func(context.Context) error {
			now := link.Stats()
			lost, kept = max(lost, now.LostToMember+now.LostFromMember), max(kept, now.KeptToMember+now.KeptFromMember)
			return nil
		}))
		after := link.Stats().Connections
		a.saw(lost+kept > 0 || before > 0 && after == 0,
			"up to %d bytes were lost and %d waited; %d connections became %d", lost, kept, before, after)
	}
}

func (st *testbed) delay(ctx context.Context, a *Applied) {
	d := time.Duration(a.Choice+1) * 100 * time.Millisecond
	breaking(func(p *proxy.Proxy) { p.Delay(d) })(st, ctx, a)
	a.Effect = fmt.Sprintf("%v each way: %s", d, a.Effect)
}

// leastKept is more than what idle connections send: pings and acknowledgements.
const leastKept = 300

// letThroughLate holds what the hub sends, and drops all that comes after the first request. At the end it lets that
// request through, when the term that it would have renewed is long over.
func (st *testbed) letThroughLate(ctx context.Context, a *Applied) {
	link := st.server(a.Target).Proxy()
	defer link.Heal()
	link.HoldToMember()
	began := harness.Now().Boot
	err := await(ctx, func(context.Context) error {
		return must.ErrorIf(link.Stats().KeptToMember < leastKept, "nothing is kept")
	})
	link.CutToMember()
	kept := link.Stats().KeptToMember
	must.Do(process.Pass(ctx, a.For-(harness.Now().Boot-began)))
	link.Release()
	err = errors.Join(err, await(ctx, func(context.Context) error {
		return must.ErrorIf(link.Stats().KeptToMember > 0, "it is not through")
	}))
	a.saw(err == nil, "%d bytes were kept, to be let through late: %v", kept, err)
	// A reset could overtake what the server has not read yet.
	must.Do(process.Pass(ctx, 200*time.Millisecond))
}

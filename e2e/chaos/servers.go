package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/process"
	"github.com/leasecast/leasecast/e2e/proxy"
)

// applyServer is for faults at an API server or its etcd.
func (st *stage) applyServer(ctx context.Context, a *Applied) error {
	s := st.server(a.Target)
	pids := s.PIDs()
	switch a.Kind {
	case ServerPause:
		return pauseFor(ctx, a, pids.APIServer, s.Pause, s.Resume)
	case EtcdPause:
		return pauseFor(ctx, a, pids.Etcd, s.PauseEtcd, s.ResumeEtcd)
	case ServerKill:
		err := errors.Join(killFor(ctx, s.Kill, a.For), s.Restart(ctx))
		a.saw(pids.APIServer != s.PIDs().APIServer, "process %d became %d", pids.APIServer, s.PIDs().APIServer)
		return err
	case EtcdKill:
		err := errors.Join(killFor(ctx, s.KillEtcd, a.For), s.RestartEtcd(ctx))
		a.saw(pids.Etcd != s.PIDs().Etcd, "process %d became %d", pids.Etcd, s.PIDs().Etcd)
		return errors.Join(err, harness.Await(ctx, gonePatience, "the API server has found etcd again",
			func(ctx context.Context) error {
				_, err := version(ctx, st.client(a.Target))
				return err
			}))
	case EtcdRestore:
		return st.goBack(ctx, a, s)
	case LinkHalfOpen:
		return halfOpen(ctx, a, s)
	}
	return fmt.Errorf("there is no fault %q", a.Kind)
}

func pauseFor(ctx context.Context, a *Applied, pid int, pause, resume func() error) error {
	if err := pause(); err != nil {
		return err
	}
	a.saw(true, "process %d was paused", pid)
	return errors.Join(process.Pass(ctx, a.For), resume())
}

func killFor(ctx context.Context, kill func() error, d time.Duration) error {
	if err := kill(); err != nil {
		return err
	}
	return process.Pass(ctx, d)
}

// goBack restores etcd, after a while, to what it holds now.
func (st *stage) goBack(ctx context.Context, a *Applied, s *fleet.Server) (err error) {
	snapshot, err := s.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, snapshot.Discard()) }()
	if err := process.Pass(ctx, a.For); err != nil {
		return err
	}
	var was uint64
	if err := insist(ctx, func(ctx context.Context) (err error) {
		was, err = version(ctx, st.client(a.Target))
		return err
	}); err != nil {
		return err
	}
	if err := s.Restore(ctx, snapshot); err != nil {
		return err
	}
	is, err := version(ctx, st.client(a.Target))
	a.saw(true, "versions were at %d and are at %d after the start", was, is)
	return err
}

// client is the administrator's, straight at the API server of a member or the hub.
func (st *stage) client(server string) client.Client {
	if server == hubServer {
		return st.d.Hub
	}
	return st.d.Members[server]
}

// version asks etcd for its latest resourceVersion.
func version(ctx context.Context, c client.Client) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	list := &corev1.NamespaceList{}
	if err := c.List(ctx, list); err != nil {
		return 0, err
	}
	return strconv.ParseUint(list.ResourceVersion, 10, 64)
}

// halfOpen kills the API server behind a link that hides it, and restarts it. The hub's connections stay open and lead
// nowhere.
func halfOpen(ctx context.Context, a *Applied, s *fleet.Server) error {
	s.Proxy().CutFromMember()
	defer s.Proxy().Heal()
	before := s.Proxy().Stats().Connections
	if err := s.Kill(); err != nil {
		return err
	}
	after := s.Proxy().Stats().Connections
	a.saw(after > 0, "the hub had %d connections before the end of the server, and thought that it had %d after it",
		before, after)
	return errors.Join(process.Pass(ctx, a.For), s.Restart(ctx))
}

// applyLink is for faults of the network between the hub and a server.
func (st *stage) applyLink(ctx context.Context, a *Applied) error {
	link := st.server(a.Target).Proxy()
	defer link.Heal()
	before := link.Stats()
	var lost, kept int64
	look := func(now proxy.Stats) {
		lost = max(lost, now.LostToMember+now.LostFromMember)
		kept = max(kept, now.KeptToMember+now.KeptFromMember)
	}
	switch a.Kind {
	case LinkCutTo:
		link.CutToMember()
	case LinkCutFrom:
		link.CutFromMember()
	case LinkBlackHole:
		link.BlackHole()
	case LinkDelay:
		link.Delay(time.Duration(a.Choice+1) * 100 * time.Millisecond)
	case LinkReset:
		link.Reset()
	case LateRenewal:
		return letThroughLate(ctx, a, link)
	default:
		return fmt.Errorf("there is no fault %q", a.Kind)
	}
	err := during(ctx, a.For, look, link)
	switch a.Kind {
	case LinkDelay:
		a.saw(kept > 0, "up to %d bytes waited %d ms, each way", kept, (a.Choice+1)*100)
	case LinkReset:
		a.saw(before.Connections > 0 && link.Stats().Connections == 0, "%d connections were reset, no other was let through",
			before.Connections)
	default:
		a.saw(lost > 0, "up to %d bytes of open connections were lost", lost)
	}
	return err
}

// leastKept is more than what idle connections send: pings and acknowledgements.
const leastKept = 300

// letThroughLate holds what the hub sends, and drops all that comes after the first request. At the end it lets that
// request through, when the term that it would have renewed is long over.
func letThroughLate(ctx context.Context, a *Applied, link *proxy.Proxy) error {
	link.HoldToMember()
	began := harness.Now().Boot
	err := await(ctx, func(context.Context) error {
		if link.Stats().KeptToMember < leastKept {
			return errors.New("nothing is kept")
		}
		return nil
	})
	link.CutToMember()
	kept := link.Stats().KeptToMember
	a.saw(err == nil, "%d bytes were kept, and let through late", kept)
	if err := process.Pass(ctx, a.For-(harness.Now().Boot-began)); err != nil {
		return err
	}
	link.Release()
	err = await(ctx, func(context.Context) error {
		if link.Stats().KeptToMember > 0 {
			return errors.New("it is not through")
		}
		return nil
	})
	if err != nil {
		a.saw(false, "%d bytes were kept, and not taken", kept)
	}
	// A reset could overtake what the server has not read yet.
	return process.Pass(ctx, 200*time.Millisecond)
}

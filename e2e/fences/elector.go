package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/lines"
	"github.com/leasecast/leasecast/e2e/process"
)

// assets is the environment variable that names the folder of the electors.
const assets = "ELECTOR_ASSETS"

// elector is a small program in one member, which elects itself by a library as its author would, and acts all the time
// while it is elected. It ends when it loses its lock, and is started again.
type elector struct {
	*program
	member string
	client client.Client
	way    *hanging
	keeper *process.Keeper
	stop   context.CancelFunc

	mu     sync.Mutex // guards what follows
	record *lines.File
	did    []harness.Act
	holds  []harness.Act // one for each process that acted, in order
	last   int           // process
}

// startElector starts it.
func startElector(ctx context.Context, d *harness.Drill, p *program, member string) (instance, error) {
	folder := os.Getenv(assets)
	if folder == "" {
		return nil, fmt.Errorf("%s is not set: it must name the folder of the electors, which `make electors` builds", assets)
	}
	way, err := newHanging(d.Fleet.Member(member).AdminConfig(), p.limits)
	if err != nil {
		return nil, fmt.Errorf("the way of %s in %s: %w", p.name, member, err)
	}
	name := p.namespace + "-" + member
	record := filepath.Join(p.dir, name+".record")
	seconds := func(n int32) string { return fmt.Sprintf("%ds", n) }
	start := func() (*process.Process, error) {
		return process.Start(name, filepath.Join(p.dir, name+".log"), filepath.Join(folder, p.binary),
			"-server="+way.address, "-namespace="+p.lock.Namespace, "-name="+p.lock.Name, "-record="+record,
			"-lease="+seconds(p.lock.LeaseDurationSeconds), "-renew="+seconds(p.lock.RenewDeadlineSeconds),
			"-retry="+seconds(p.lock.RetryPeriodSeconds), "-timeout="+p.clientTimeout.String(),
			fmt.Sprintf("-release=%v", p.releases))
	}
	first, err := start()
	if err != nil {
		return nil, errors.Join(err, way.close())
	}
	e := &elector{program: p, member: member, client: d.Members[member], way: way, record: lines.Follow(record)}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	e.stop = stop
	e.keeper = process.Keep(running, name, first, func(int) (*process.Process, error) { return start() },
		process.KeepOptions{Backoff: restarts, MayEnd: true})
	return e, nil
}

func (e *elector) close() error {
	e.stop()
	<-e.keeper.Done()
	return errors.Join(e.keeper.Current().Stop(), e.way.close())
}

func (e *elector) in() string { return e.member }

func (e *elector) of() *program { return e.program }

func (e *elector) check() error { return e.keeper.Check() }

// restart kills the process and frees its lock, as a graceful restart does. The next process takes the lock.
func (e *elector) restart(ctx context.Context) error {
	if _, err := e.keeper.Kill(ctx, 0); err != nil {
		return err
	}
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: e.lock.Namespace, Name: e.lock.Name}}
	return e.client.Patch(ctx, l, client.RawPatch("application/merge-patch+json",
		[]byte(`{"spec":{"holderIdentity":""}}`)))
}

// read takes what was recorded since the last call.
func (e *elector) read() error {
	now := harness.Now()
	return e.record.News(func(raw []byte) error {
		var line struct {
			Process int   `json:"process"`
			At      int64 `json:"at"`
		}
		if err := json.Unmarshal(raw, &line); err != nil {
			return err
		}
		at := harness.BootOf(time.Unix(0, line.At), now)
		a := harness.Act{Cluster: e.member, Namespace: e.namespace, Object: e.lock.Name, What: "act", Begin: at, End: at}
		e.did = append(e.did, a)
		if len(e.holds) == 0 || line.Process != e.last {
			a.What = "hold its lock"
			e.holds, e.last = append(e.holds, a), line.Process
		}
		e.holds[len(e.holds)-1].End = at
		return nil
	})
}

// wrote reports whether it has acted since an instant.
func (e *elector) wrote(since time.Duration) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.read() == nil && len(e.did) > 0 && e.did[len(e.did)-1].Begin >= since
}

// acts returns what it did, and when its processes held their lock: from their first act to the last one.
func (e *elector) acts() (writes, holds []harness.Act, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	err = e.read()
	return e.did, append([]harness.Act(nil), e.holds...), err
}

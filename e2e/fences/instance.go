package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/lines"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/process"
)

const (
	// assets is the environment variable that names the folder of the electors.
	assets = "ELECTOR_ASSETS"
	// undoEvery is how often the drill undoes what a controller writes.
	undoEvery = 200 * time.Millisecond
	// acquired is what a controller logs when it has taken its lock, acted what an elector logs in each act.
	acquired, acted = "Successfully acquired lease", "act"
)

// restarts is the wait before a program that has ended is started again.
const restarts = time.Second

// instance is a program in one member. It ends when it loses its lock, and is started again, as by a kubelet. It is
// judged by its log, by its ends, and by what it wrote.
type instance struct {
	*program
	member string
	client client.WithWatch
	way    *hanging // of an elector, else nil
	keeper *process.Keeper
	seen   *harness.Watch[*corev1.ConfigMap] // of the kube-controller-manager
	stop   context.CancelFunc
	undoes sync.WaitGroup // until nothing is undone any more

	mu     sync.Mutex // guards what follows
	log    *lines.File
	writes []harness.Act
	holds  []harness.Act
	upkeep upkeep
}

// upkeep is the ConfigMap that the kube-controller-manager keeps, and the drill deletes.
type upkeep struct {
	last   *corev1.ConfigMap // nil: there is none
	undone time.Duration     // when the first request to delete it was sent; zero: not yet
	failed error             // why it cannot be deleted
}

// start starts the program.
func (i *instance) start(ctx context.Context, d *harness.Drill) {
	start := i.startElector
	if i.isElector() {
		i.way = must.Get(newHanging(d.Fleet.Member(i.member).AdminConfig(), i.limits))
	} else {
		start = func() (*process.Process, error) { return d.StartControllers(i.member, publisher, i.flags()...) }
		i.seen = must.Get(harness.Observe(ctx, i.client, &corev1.ConfigMapList{}, &corev1.ConfigMap{},
			client.InNamespace(i.namespace), client.MatchingFields{"metadata.name": published}))
	}
	first := must.Get(start())
	i.log = lines.Follow(first.Log())
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	i.stop = stop
	i.keeper = process.Keep(running, first.Name(), first, func(int) (*process.Process, error) { return start() },
		process.KeepOptions{Wait: restarts, MayEnd: true, Ended: func(*process.Process) { i.ended() }})
	if !i.isElector() {
		i.undoes.Go(func() {
			for process.Pass(running, undoEvery) == nil {
				i.take()
				i.remove(running)
			}
		})
	}
}

// startElector starts a process of an elector.
func (i *instance) startElector() (*process.Process, error) {
	folder := os.Getenv(assets)
	if folder == "" {
		return nil, fmt.Errorf("%s is not set: it must name the folder of the electors, which `make electors` builds", assets)
	}
	name := i.namespace + "-" + i.member
	seconds := func(n int32) string { return fmt.Sprintf("%ds", n) }
	return process.Start(name, filepath.Join(i.dir, name+".log"), filepath.Join(folder, i.binary),
		"-server="+i.way.URL, "-namespace="+i.lock.Namespace, "-name="+i.lock.Name,
		"-lease="+seconds(i.lock.LeaseDurationSeconds), "-renew="+seconds(i.lock.RenewDeadlineSeconds),
		"-retry="+seconds(i.lock.RetryPeriodSeconds), fmt.Sprintf("-release=%v", i.releases))
}

// close stops the program.
func (i *instance) close() (err error) {
	i.stop()
	i.undoes.Wait()
	if i.seen != nil {
		i.seen.Stop()
	}
	if i.keeper != nil {
		<-i.keeper.Done()
		err = i.keeper.Current().Stop()
	}
	if i.way != nil {
		i.way.close()
	}
	return err
}

// check returns an error if the program does not start, or what it does cannot be undone.
func (i *instance) check() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return errors.Join(i.keeper.Check(), i.upkeep.failed)
}

// restart kills an elector and frees its lock, as a graceful restart does. The next process takes the lock.
func (i *instance) restart(ctx context.Context) error {
	if _, err := i.keeper.Kill(ctx, 0); err != nil {
		return err
	}
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: i.lock.Namespace, Name: i.lock.Name}}
	return i.client.Patch(ctx, l, client.RawPatch("application/merge-patch+json",
		[]byte(`{"spec":{"holderIdentity":""}}`)))
}

func (i *instance) act(what string, begin, end time.Duration) harness.Act {
	return harness.Act{Cluster: i.member, Namespace: i.namespace, Object: i.lock.Name, What: what, Begin: begin, End: end}
}

// read takes what was logged since the last call. A process holds its lock from the line that shows it until its end.
func (i *instance) read() error {
	now := harness.Now()
	return i.log.News(func(raw []byte) error {
		var line struct {
			At      float64 `json:"ts"` // milliseconds
			Message string  `json:"msg"`
		}
		if json.Unmarshal(raw, &line) != nil || line.Message != acquired && line.Message != acted {
			return nil // other lines may be anything
		}
		at := harness.BootOf(time.UnixMicro(int64(line.At*1000)), now)
		if n := len(i.holds); n == 0 || i.holds[n-1].End != harness.Unfinished {
			i.holds = append(i.holds, i.act("hold its lock", at, harness.Unfinished))
		}
		if line.Message == acted {
			i.writes = append(i.writes, i.act("act", at, at))
		}
		return nil
	})
}

// ended notes that the process has ended.
func (i *instance) ended() {
	now := harness.Now().Boot
	i.mu.Lock()
	defer i.mu.Unlock()
	i.upkeep.failed = errors.Join(i.upkeep.failed, i.read())
	if n := len(i.holds); n > 0 && i.holds[n-1].End == harness.Unfinished {
		i.holds[n-1].End = now
	}
}

// wrote reports whether the program has written something since an instant.
func (i *instance) wrote(since time.Duration) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.read() == nil && len(i.writes) > 0 && i.writes[len(i.writes)-1].Begin >= since
}

// acts returns what the program wrote, and when its processes held their lock.
func (i *instance) acts() (writes, holds []harness.Act) {
	i.mu.Lock()
	defer i.mu.Unlock()
	must.Do(i.read())
	holds = slices.Clone(i.holds)
	for n := range holds {
		holds[n].End = min(holds[n].End, harness.Now().Boot)
	}
	return slices.Clone(i.writes), holds
}

// take notes which ConfigMaps were created since the last call. One was created after the request to delete the one
// before was sent, in the second that the API server put on it or later, and before it was seen.
func (i *instance) take() {
	i.mu.Lock()
	defer i.mu.Unlock()
	u := &i.upkeep
	for _, s := range i.seen.Take() {
		switch {
		case s.Gone:
			u.last = nil
			continue
		case u.last == nil || s.Object.UID != u.last.UID:
			begin := max(u.undone, harness.BootOf(s.Object.CreationTimestamp.Time, s.At))
			i.writes = append(i.writes, i.act("write "+published, begin, s.At.Boot))
			u.undone = 0
		}
		u.last = s.Object
	}
}

// remove deletes the ConfigMap.
func (i *instance) remove(ctx context.Context) {
	i.mu.Lock()
	last := i.upkeep.last
	if last != nil && i.upkeep.undone == 0 {
		i.upkeep.undone = harness.Now().Boot
	}
	i.mu.Unlock()
	if last == nil {
		return
	}
	err := i.client.Delete(ctx, last, client.Preconditions{UID: &last.UID})
	hangs := apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsInternalError(err)
	if client.IgnoreNotFound(err) == nil || apierrors.IsConflict(err) || hangs || ctx.Err() != nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.upkeep.failed = errors.Join(i.upkeep.failed, fmt.Errorf("delete what %s wrote in %s: %w", i.name, i.member, err))
}

package harness

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/process"
)

// KubeletLike are the waits of [Drill.Keep], for a user who watches. A kubelet waits 10 s, doubles up to 5 minutes, and
// resets after 10 minutes.
var KubeletLike = process.Backoff{First: time.Second, Most: 30 * time.Second, Reset: time.Minute}

// Keep restarts hub and guestbooks whenever they end, until ctx ends. It reports each end and each restart to progress.
// From then on [Drill.Check] reports restarts that failed, not ends. Call the returned function between the end of ctx
// and [Drill.Stop]: it waits until nothing is restarted anymore.
func (d *Drill) Keep(ctx context.Context, progress func(line string)) (wait func()) {
	keep := func(first *process.Process, again func() (*process.Process, error)) {
		d.keepers = append(d.keepers, process.Keep(ctx, first.Name(), first, func(int) (*process.Process, error) {
			p, err := again()
			if err == nil {
				progress(fmt.Sprintf("%s runs as process %d", p.Name(), p.PID()))
			}
			return p, err
		}, process.KeepOptions{Backoff: KubeletLike, MayEnd: true, Ended: func(p *process.Process, wait time.Duration) {
			progress(fmt.Sprintf("%s has ended (%s), see %s; it starts again in %s", p.Name(), p.How(), p.Log(), wait))
		}}))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	keep(d.hubs[len(d.hubs)-1], func() (*process.Process, error) { return d.StartHub() })
	for _, member := range slices.Sorted(maps.Keys(d.guestbooks)) {
		keep(d.guestbooks[member].Process, func() (*process.Process, error) { return d.restartGuestbook(member) })
	}
	keepers := slices.Clone(d.keepers)
	return func() {
		for _, k := range keepers {
			<-k.Done()
		}
	}
}

// restartGuestbook starts a guestbook in the place of one that has ended.
func (d *Drill) restartGuestbook(member string) (*process.Process, error) {
	return must.Return(func() *process.Process {
		next := *d.Guestbook(member)
		must.Do(next.Acts.Ended(Now().Boot))
		next.Process = must.Get(next.start())
		d.mu.Lock()
		defer d.mu.Unlock()
		d.guestbooks[member] = &next
		return next.Process
	})
}

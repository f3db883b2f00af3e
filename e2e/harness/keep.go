package harness

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/leasecast/leasecast/e2e/process"
)

// KubeletLike are the waits of [Drill.Keep]. A kubelet waits 10 s, then twice as long each time, up to 5 minutes, and
// begins anew after 10 minutes. Nobody watches a laptop for that long.
var KubeletLike = process.Backoff{First: time.Second, Most: 30 * time.Second, Reset: time.Minute}

// Keep restarts hub and guestbooks when they end, whoever ended them, until ctx ends. It tells progress of each end and
// each restart. From then on [Drill.Check] reports restarts that failed, not ends. The function it returns waits until
// nothing is restarted any more; call it between the end of ctx and [Drill.Stop].
func (d *Drill) Keep(ctx context.Context, progress func(line string)) (wait func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	keep := func(first *process.Process, again func() (*process.Process, error)) {
		k := process.Keep(ctx, first.Name(), first, func(int) (*process.Process, error) {
			p, err := again()
			if err != nil {
				progress(err.Error())
				return nil, err
			}
			progress(fmt.Sprintf("%s runs as process %d", p.Name(), p.PID()))
			return p, nil
		}, process.KeepOptions{Backoff: KubeletLike, MayEnd: true, Ended: func(p *process.Process, wait time.Duration) {
			progress(fmt.Sprintf("%s has ended (%s), see %s; it starts again in %s", p.Name(), p.How(), p.Log(), wait))
		}})
		d.keepers = append(d.keepers, k)
	}
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
	last := d.Guestbook(member)
	if err := last.Acts.Ended(Now().Boot); err != nil {
		return nil, err
	}
	next, err := last.start()
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.guestbooks[member] = next
	return next.Process, nil
}

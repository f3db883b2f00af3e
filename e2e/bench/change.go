package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/process"
)

const (
	// changed is how many namespaces change their leader at once.
	changed = 200
	// afterwards is how long after the change the hub may still write because of it.
	afterwards = 5 * time.Second
)

// massChange changes the leader of all namespaces at once, for two reasons.
type massChange struct {
	*bench
	drill *harness.Drill
	view  *harness.View
}

// measureChange prefers another cluster, counts what the hub asks of its own API server for that, and then loses the
// cluster that leads. It measures each time how long all namespaces need until they are led again.
func measureChange(ctx context.Context, b *bench) (err error) {
	m := &massChange{bench: b}
	o := harness.Options{Timings: harness.Fast, AuditReads: true, Members: members(teams(changed)...)}
	if m.drill, err = b.start(ctx, o); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.drill.Stop()) }()
	if m.view, err = m.drill.Look(ctx); err != nil {
		return err
	}
	defer m.view.Close()
	if err := awaitLed(ctx, m.drill, clusters[0], changed); err != nil {
		return err
	}
	if err := m.handOver(ctx, clusters[0], clusters[1]); err != nil {
		return fmt.Errorf("planned change: %w", err)
	}
	if err := m.lose(ctx, clusters[1]); err != nil {
		return fmt.Errorf("loss of the leader: %w", err)
	}
	return m.drill.Check()
}

// handOver raises a cluster above the one that leads, and counts the hub's requests until all is quiet again.
func (m *massChange) handOver(ctx context.Context, from, to string) error {
	var begin time.Time
	over, err := m.change(ctx, from, "are handed over", func() error {
		begin = time.Now()
		return m.drill.SetPriority(ctx, to, 1000)
	})
	if err != nil {
		return err
	}
	err = errors.Join(awaitLed(ctx, m.drill, to, changed), process.Pass(ctx, afterwards))
	if err != nil {
		return err
	}
	requests, err := requestsBetween(m.drill, begin, time.Now())
	if err != nil {
		return err
	}
	m.figures[massHandover] = over.Seconds()
	for key, counted := range hubRequests {
		m.figures[key] = 0
		for _, r := range requests[m.drill.Fleet.Hub().Name()] {
			if counted(r) {
				m.figures[key] += 1. / changed
			}
		}
	}
	m.say("for each: %.2f writes of the record and %.2f of its status, %.2f events, %.2f live reads",
		m.figures[changeRecordWrites], m.figures[changeStatusWrites], m.figures[changeEvents], m.figures[changeLiveReads])
	return nil
}

// lose makes the link to the leader dead.
func (m *massChange) lose(ctx context.Context, leader string) error {
	proxy := m.drill.Fleet.Member(leader).Proxy()
	defer proxy.Heal()
	over, err := m.change(ctx, leader, "have another leader", func() error { proxy.BlackHole(); return nil })
	m.figures[massFailover] = over.Seconds()
	return err
}

// change returns how long after the floor the last namespace is led by another cluster. A namespace is led again when
// the watch of its new leader shows the Lease. The floor is that of the namespace whose old leader was renewed last.
func (m *massChange) change(ctx context.Context, old, what string, cause func() error) (time.Duration, error) {
	if err := process.Pass(ctx, 2*m.drill.Timings.Renew); err != nil { // so that a renewal of each is seen
		return 0, err
	}
	at := harness.Now().Boot
	if err := cause(); err != nil {
		return 0, err
	}
	led := map[string]time.Duration{} // when each namespace is first led by another cluster
	err := m.drill.Await(ctx, leadLimit, fmt.Sprintf("%d namespaces %s", changed, what), func(context.Context) error {
		for cluster, w := range m.view.Leases {
			if cluster == old {
				continue
			}
			for namespace, copies := range renewals(w.Take()) {
				for _, c := range copies {
					if first, known := led[namespace]; c.seen > at && (!known || c.seen < first) {
						led[namespace] = c.seen
					}
				}
			}
		}
		if len(led) < changed {
			return fmt.Errorf("%d of them", len(led))
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	var took []time.Duration
	var floor time.Duration
	seen := m.view.Leases[old].Take()
	for namespace, first := range led {
		stamp, ok := harness.LastRenewTime(seen, namespace, at)
		if !ok {
			return 0, fmt.Errorf("no renewal of %s was seen before the change", namespace)
		}
		floor = max(floor, harness.Floor(m.drill.Timings, at, stamp, 0))
		took = append(took, first-at)
	}
	m.say("%d namespaces %s: median %.2f s, last %.2f s; floor %.2f s", changed, what,
		median(took).Seconds(), quantile(took, 1).Seconds(), floor.Seconds())
	return quantile(took, 1) - floor, nil
}

// hubRequests are the requests to the hub's API server that each figure counts. The hub follows all that it reads by
// watches, so that what it gets or lists is a live read.
var hubRequests = map[string]func(fleet.Request) bool{
	changeRecordWrites: func(r fleet.Request) bool { return r.Writes() && isRecord(r) && !isStatus(r) },
	changeStatusWrites: func(r fleet.Request) bool { return r.Writes() && isRecord(r) && isStatus(r) },
	changeEvents:       func(r fleet.Request) bool { return r.Writes() && strings.Contains(r.URI, "/events") },
	changeLiveReads: func(r fleet.Request) bool {
		ours := strings.Contains(r.URI, "/"+v1alpha1.GroupVersion.Group+"/") ||
			strings.Contains(r.URI, "/cluster.x-k8s.io/") || strings.Contains(r.URI, "/secrets")
		return ours && (r.Verb == "get" || r.Verb == "list")
	},
}

func isRecord(r fleet.Request) bool { return strings.Contains(r.URI, "/namespaceleaders") }

func isStatus(r fleet.Request) bool {
	path, _, _ := strings.Cut(r.URI, "?")
	return strings.HasSuffix(path, "/status")
}

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	dto "github.com/prometheus/client_model/go"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
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
	drill      *harness.Drill
	view       *harness.View
	namespaces []string
}

// measureChange prefers another cluster, counts what the hub asks of its own API server for that, and then loses the
// cluster that leads. It measures each time how long all namespaces need until they are led again.
func measureChange(ctx context.Context, b *bench) (err error) {
	m := &massChange{bench: b, namespaces: teams(changed)}
	if m.drill, err = b.start(ctx, harness.Options{Timings: harness.Fast, Members: members(m.namespaces...)}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.drill.Stop()) }()
	if m.view, err = m.drill.Look(ctx); err != nil {
		return err
	}
	defer m.view.Close()
	if err := m.await(ctx, clusters[0]); err != nil {
		return err
	}
	b.say(fmt.Sprintf("%d namespaces are led by %s", changed, clusters[0]))
	if err := m.handOver(ctx, clusters[0], clusters[1]); err != nil {
		return fmt.Errorf("planned change: %w", err)
	}
	if err := m.lose(ctx, clusters[1]); err != nil {
		return fmt.Errorf("loss of the leader: %w", err)
	}
	return m.drill.Check()
}

// await returns when this cluster leads everywhere and all are settled, and the first renewals of its terms have come.
func (m *massChange) await(ctx context.Context, leader string) error {
	got, err := awaitSettled(ctx, m.drill, m.view.Records, changed)
	if err == nil && got != leader {
		err = fmt.Errorf("%s leads, want %s", got, leader)
	}
	return errors.Join(err, process.Pass(ctx, 2*m.drill.Timings.Renew))
}

// handOver raises a cluster above the one that leads, and counts the hub's requests until all is quiet again.
func (m *massChange) handOver(ctx context.Context, from, to string) error {
	before, err := m.requests(ctx)
	if err != nil {
		return err
	}
	over, err := m.change(ctx, from, "are handed over", func() error { return m.drill.SetPriority(ctx, to, 1000) })
	if err != nil {
		return err
	}
	if err := errors.Join(m.await(ctx, to), process.Pass(ctx, afterwards)); err != nil {
		return err
	}
	after, err := m.requests(ctx)
	if err != nil {
		return err
	}
	m.figures[massHandover] = over.Seconds()
	for key := range hubRequests {
		m.figures[key] = (after[key] - before[key]) / changed
	}
	m.say(fmt.Sprintf("for each: %.2f writes of the record and %.2f of its status, %.2f events, %.2f live reads",
		m.figures[changeRecordWrites], m.figures[changeStatusWrites], m.figures[changeEvents], m.figures[changeLiveReads]))
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

// change returns how long after the floor the last namespace is led by another cluster. A namespace is led again when the
// watch of its new leader shows the Lease. The floor is that of the namespace whose old leader was renewed last.
func (m *massChange) change(ctx context.Context, old, what string, cause func() error) (over time.Duration, err error) {
	for _, w := range m.view.Leases {
		w.Take() // what was before is of no interest
	}
	if err := process.Pass(ctx, 2*m.drill.Timings.Renew); err != nil { // so that a renewal of each is known
		return 0, err
	}
	at := harness.Now().Boot
	if err := cause(); err != nil {
		return 0, err
	}
	var took []time.Duration
	led := map[string]change{}
	err = m.drill.Await(ctx, leadLimit, fmt.Sprintf("%d namespaces %s", changed, what), func(context.Context) error {
		for cluster, w := range m.view.Leases {
			if cluster != old {
				note(led, w.Take(), at)
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
	for _, c := range led {
		took = append(took, c.At-at)
	}
	stamps := renewals(m.view.Leases[old].Seen())
	var floor time.Duration
	for _, namespace := range m.namespaces {
		stamp, ok := lastUpTo(stamps[namespace], at)
		if !ok {
			return 0, fmt.Errorf("no renewal of %s was seen before the change", namespace)
		}
		floor = max(floor, harness.Floor(m.drill.Timings, at, stamp, 0))
	}
	last := quantile(took, 1)
	m.say(fmt.Sprintf("%d namespaces %s: median %.2f s, last %.2f s; floor %.2f s", changed, what,
		median(took).Seconds(), last.Seconds(), floor.Seconds()))
	return last - floor, nil
}

// note keeps the first Lease of each namespace that lets a member lead after an instant.
func note(led map[string]change, seen []harness.Sighting[*coordinationv1.Lease], after time.Duration) {
	for _, s := range seen {
		c, _ := wire.Read(s.Object)
		if first, known := led[c.Namespace]; s.Gone || !c.LeadsHere() || s.At.Boot <= after || known && first.At <= s.At.Boot {
			continue
		}
		led[c.Namespace] = change{c.Namespace, true, s.At.Boot}
	}
}

// lastUpTo is the last stamp up to an instant.
func lastUpTo(copies []renewal, at time.Duration) (stamp time.Duration, ok bool) {
	for _, c := range copies {
		if c.stamped <= at && (!ok || c.stamped > stamp) {
			stamp, ok = c.stamped, true
		}
	}
	return stamp, ok
}

// hubRequests say which requests to the hub's API server each figure counts, by the labels of the server's metric. The
// hub follows all that it reads by watches, so that what it gets or lists is a live read. The server and its
// controller manager ask for none of this, and this program follows the records by a watch.
var hubRequests = map[string]func(*dto.Metric) bool{
	changeRecordWrites: func(m *dto.Metric) bool { return isRecord(m) && label(m, "subresource") == "" && isWrite(m) },
	changeStatusWrites: func(m *dto.Metric) bool { return isRecord(m) && label(m, "subresource") == "status" && isWrite(m) },
	changeEvents:       func(m *dto.Metric) bool { return label(m, "resource") == "events" && isWrite(m) },
	changeLiveReads: func(m *dto.Metric) bool {
		verb := label(m, "verb")
		ours := label(m, "group") == v1alpha1.GroupVersion.Group || label(m, "group") == "cluster.x-k8s.io" || label(m, "resource") == "secrets"
		return ours && (verb == "GET" || verb == "LIST")
	},
}

func isRecord(m *dto.Metric) bool { return label(m, "resource") == "namespaceleaders" }

// requests counts the requests so far, by the keys of hubRequests.
func (m *massChange) requests(ctx context.Context) (map[string]float64, error) {
	admin, err := kubernetes.NewForConfig(m.drill.Fleet.Hub().AdminConfig())
	if err != nil {
		return nil, fmt.Errorf("client of the hub: %w", err)
	}
	metrics, err := admin.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("metrics of the hub's API server: %w", err)
	}
	counts := map[string]float64{}
	for key, counted := range hubRequests {
		if counts[key], err = count(bytes.NewReader(metrics), counted); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

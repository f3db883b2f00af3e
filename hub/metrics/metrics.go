// Package metrics tells Prometheus what a hub knows. It reads what the hub holds anyway when it
// is asked, and hears of changes from the watch of the records: no decision waits for it, and no
// other package of the hub knows it.
//
// Only the replica that decides for a fleet tells of it, so each fact comes from one place. A series
// ends with its Cluster or record. config/README.md lists all of them.
package metrics

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/controller"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/skew"
)

// readTimeout bounds all reads from caches for one answer.
const readTimeout = 5 * time.Second

// Fleet is what is asked of a [fleet.Provider].
type Fleet interface {
	Members(fleetName string) []fleet.Member
	Offsets() map[fleet.Key]skew.Interval
}

// Decider is what is asked of a [controller.Controller].
type Decider interface {
	Serves(fleetName string) bool
	Work(key fleet.Key) (controller.Work, bool)
}

// Options configure Metrics. All fields but Registerer are required.
type Options struct {
	// Registerer gets the collector while the hub runs. Nil: nobody asks.
	Registerer prometheus.Registerer
	// Version is that of the program.
	Version string
	Clock   lease.Clock
	// Elected reports whether this replica has the right to write now.
	Elected func() bool
}

// Metrics collects. Make it with New, and add it with SetupWithManager.
type Metrics struct {
	Options
	fleet   Fleet
	decider Decider
	reader  client.Reader
	local   manager.Manager

	writes  *prometheus.CounterVec
	latency *prometheus.HistogramVec
	changes *prometheus.CounterVec

	mu        sync.Mutex         // guards what follows
	measured  map[fleet.Key]bool // of which there are writes and latency
	counted   map[string]bool    // the fleets of which there are changes
	failovers map[types.NamespacedName]failover
}

// New returns Metrics that know of nothing yet.
func New(o Options) *Metrics {
	return &Metrics{
		Options: o,
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "leasecast_lease_writes_total",
			Help: "Requests that write Leases in the member, by what became of them.",
		}, []string{"fleet", "member", "result"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "leasecast_lease_write_duration_seconds",
			Help:    "How long the member took to answer a write of a Lease.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}, []string{"fleet", "member"}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "leasecast_leader_changes_total",
			Help: "Changes of leader or state of namespaces, by reason.",
		}, []string{"fleet", "reason"}),
		measured:  map[fleet.Key]bool{},
		counted:   map[string]bool{},
		failovers: map[types.NamespacedName]failover{},
	}
}

// SetupWithManager has the manager collect while it runs.
func (m *Metrics) SetupWithManager(mgr manager.Manager, f Fleet, d Decider) error {
	m.fleet, m.decider, m.reader, m.local = f, d, mgr.GetCache(), mgr
	if m.Registerer == nil {
		return nil
	}
	return mgr.Add(m)
}

// NeedLeaderElection says that a standby tells of itself, too.
func (*Metrics) NeedLeaderElection() bool { return false }

// Start answers until ctx ends.
func (m *Metrics) Start(ctx context.Context) error {
	if err := m.watch(ctx); err != nil {
		return err
	}
	if err := m.Registerer.Register(m); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	defer m.Registerer.Unregister(m)
	<-ctx.Done()
	return nil
}

func gauge(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	buildInfo = gauge("leasecast_build_info", "Always 1; the labels tell what runs.", "version", "goversion")
	elected   = gauge("leasecast_hub_elected", "1 on the replica that has the right to write.")

	leaderInfo = gauge("leasecast_namespace_leader_info",
		"Always 1; the labels tell who leads the namespace, and the state of its record.", "fleet", "namespace", "leader", "state")
	leaderSince = gauge("leasecast_namespace_leader_since_timestamp_seconds",
		"When leader and state of the namespace became what they are.", "fleet", "namespace")
	failoverTook = gauge("leasecast_last_failover_duration_seconds",
		"From the decision to replace a lost leader to the next term, the last time.", "fleet", "namespace")
	failoverFloor = gauge("leasecast_last_failover_floor_seconds",
		"The part of that which had to pass because the lost leader might still act.", "fleet", "namespace")

	memberState = gauge("leasecast_member_state",
		"Always 1; the label tells whether the hub is connected to the member, or the reason why not.", "fleet", "member", "state")
	guardInForce = gauge("leasecast_guard_in_force",
		"1 while the admission policies that protect the member's Leases are in force.", "fleet", "member")
	registrations = gauge("leasecast_reader_registrations", "Readers that are registered in the member.", "fleet", "member")
	clockOffset   = gauge("leasecast_clock_offset_seconds",
		"Bounds of how far the clock of the member's API server is ahead of the hub's.", "fleet", "member", "bound")
	renewalAge = gauge("leasecast_renewal_age_seconds",
		"Age of the oldest renewTime among the Leases by which the member leads.", "fleet", "member")
)

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		buildInfo, elected, leaderInfo, leaderSince, failoverTook, failoverFloor,
		memberState, guardInForce, registrations, clockOffset, renewalAge,
	} {
		ch <- d
	}
	m.writes.Describe(ch)
	m.latency.Describe(ch)
	m.changes.Describe(ch)
}

// goVersion is what the program was built with.
func goVersion() string { return runtime.Version() }

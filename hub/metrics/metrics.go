// Package metrics exports the state of a hub to Prometheus. On each scrape it reads what the hub holds anyway, and
// it counts changes by the watch of the records. No decision waits for it, and no other package of the hub imports
// it.
//
// Only the replica that decides for a fleet reports it, so each fact comes from one place. A series ends with its
// Cluster or record. config/README.md lists all series.
package metrics

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/controller"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/skew"
)

// readTimeout bounds all reads from caches for one answer.
const readTimeout = 5 * time.Second

// Fleet is the part of [fleet.Provider] that Metrics uses.
type Fleet interface {
	Members(fleetName string) []fleet.Member
	Offsets() map[fleet.Key]skew.Interval
}

// Decider is the part of [controller.Controller] that Metrics uses.
type Decider interface {
	Serves(fleetName string) bool
	Work(key fleet.Key) (controller.Work, bool)
}

// Options configure Metrics. All fields but Registerer are required.
type Options struct {
	// Registerer gets the collector while the hub runs. It may be nil: then nothing is collected.
	Registerer prometheus.Registerer
	// Version is the version of the program.
	Version string
	Clock   lease.Clock
	// Elected reports whether this replica has the right to write now.
	Elected func() bool
}

// Metrics is a Prometheus collector. Make it with New, and add it with SetupWithManager.
type Metrics struct {
	Options
	fleet     Fleet
	decider   Decider
	reader    client.Reader
	informers cache.Informers

	mu        sync.Mutex // guards what follows
	changes   map[change]int
	failovers map[types.NamespacedName]failover
}

// New returns Metrics that have counted nothing yet.
func New(o Options) *Metrics {
	return &Metrics{
		Options: o, changes: map[change]int{}, failovers: map[types.NamespacedName]failover{},
	}
}

// SetupWithManager has the manager run the collector.
func (m *Metrics) SetupWithManager(mgr manager.Manager, f Fleet, d Decider) error {
	m.fleet, m.decider, m.reader, m.informers = f, d, mgr.GetCache(), mgr.GetCache()
	if m.Registerer == nil {
		return nil
	}
	return mgr.Add(m)
}

// NeedLeaderElection returns false: a standby reports that it is not elected.
func (*Metrics) NeedLeaderElection() bool { return false }

// Start registers the collector until ctx ends.
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

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	buildInfo = describe("leasecast_build_info", "Always 1; the labels are its versions.", "version", "goversion")
	elected   = describe("leasecast_hub_elected", "1 on the replica that has the right to write.")

	leaderInfo = describe("leasecast_namespace_leader_info",
		"Always 1; the labels are who leads, and the state of the record.", "fleet", "namespace", "leader", "state")
	leaderSince = describe("leasecast_namespace_leader_since_timestamp_seconds",
		"When the leader or the state of the namespace last changed.", "fleet", "namespace")
	waiting = describe("leasecast_waiting_namespaces",
		"Namespaces that wait for a leader, by the reason of their records.", "fleet", "reason")
	failoverTook = describe("leasecast_last_failover_duration_seconds",
		"From the decision to replace a lost leader to the next term, the last time.", "fleet", "namespace")
	failoverFloor = describe("leasecast_last_failover_floor_seconds",
		"The part of that which had to pass because the lost leader might still act.", "fleet", "namespace")

	memberState = describe("leasecast_member_state",
		"Always 1; the label is Connected, or the reason why the hub is not connected.", "fleet", "member", "state")
	guardInForce = describe("leasecast_guard_in_force",
		"1 while the admission policies that protect the member's Leases are in force.", "fleet", "member")
	registrations = describe("leasecast_reader_registrations",
		"Readers that are registered in the member.", "fleet", "member")
	clockOffset = describe("leasecast_clock_offset_seconds",
		"Bounds of how far the clock of the member's API server is ahead of the hub's.", "fleet", "member", "bound")
	renewalAge = describe("leasecast_renewal_age_seconds",
		"Age of the oldest renewTime among the Leases by which the member leads.", "fleet", "member")
	renewalRatio = describe("leasecast_renewal_age_ratio",
		"The largest part of its lease duration that has passed since the renewTime of one of these Leases.",
		"fleet", "member")
	contested = describe("leasecast_contested_namespaces",
		"Namespaces in which the Leases of more than one member let it act. There must be none.", "fleet")
	drainedUntil = describe("leasecast_member_drained_until_timestamp_seconds",
		"Until when an operator drains the Cluster.", "fleet", "member")
	credentialsExpire = describe("leasecast_kubeconfig_expiry_timestamp_seconds",
		"When the client certificate expires by which the hub reaches the member.", "fleet", "member")
	policyCondition = describe("leasecast_policy_condition",
		"1 while the condition of the policy is True, and 0 while it is False.", "fleet", "policy", "condition")
	namespaceCondition = describe("leasecast_namespace_condition",
		"1 while the record has the condition Frozen or FailoverPending.", "fleet", "namespace", "condition")
	leaderChanges = describe("leasecast_leader_changes_total",
		"Changes of leader or state of namespaces, by reason.", "fleet", "reason")
)

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		buildInfo, elected, leaderInfo, leaderSince, waiting, failoverTook, failoverFloor,
		memberState, guardInForce, registrations, clockOffset, renewalAge, renewalRatio, contested, drainedUntil,
		policyCondition, namespaceCondition, leaderChanges, credentialsExpire,
	} {
		ch <- d
	}
}

package metrics

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
)

// connected is the state of a member without a problem.
const connected = "Connected"

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	sendGauge(ch, buildInfo, 1, m.Version, runtime.Version())
	isElected := m.Elected()
	sendGauge(ch, elected, number(isElected))
	if !isElected {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	records, fleets, err := m.read(ctx)
	if err == nil {
		err = m.collectPolicies(ctx, ch, fleets)
	}
	if err != nil {
		ch <- prometheus.NewInvalidMetric(leaderInfo, err)
		return
	}
	now := m.Clock.Now().Wall
	waits := map[change]int{}
	for i := range records {
		r := &records[i]
		m.collectRecord(ch, r, now)
		if r.Spec.State == v1alpha1.StateVacant || r.Spec.State == v1alpha1.StateEnding {
			waits[change{r.Namespace, string(r.Spec.Reason)}]++
		}
	}
	for of, n := range waits {
		sendGauge(ch, waiting, float64(n), of.fleet, of.reason)
	}
	offsets := m.fleet.Offsets()
	for name := range fleets {
		holders := map[string]int{}
		for _, member := range m.fleet.Members(name) {
			if member.Gone {
				continue
			}
			m.collectMember(ch, member)
			if o, ok := offsets[member.Key]; ok {
				sendGauge(ch, clockOffset, o.Lo.Seconds(), member.Fleet, member.Name, "least")
				sendGauge(ch, clockOffset, o.Hi.Seconds(), member.Fleet, member.Name, "most")
			}
			is := m.termsOf(ctx, member, records)
			if is.any {
				sendGauge(ch, renewalAge, is.age.Seconds(), member.Fleet, member.Name)
				sendGauge(ch, renewalRatio, is.ratio, member.Fleet, member.Name)
			}
			for _, namespace := range is.live {
				holders[namespace]++
			}
		}
		maps.DeleteFunc(holders, func(_ string, n int) bool { return n < 2 })
		sendGauge(ch, contested, float64(len(holders)), name)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.changes, func(c change, _ int) bool { return !fleets[c.fleet] })
	for c, n := range m.changes {
		ch <- prometheus.MustNewConstMetric(leaderChanges, prometheus.CounterValue, float64(n), c.fleet, c.reason)
	}
}

func sendGauge(ch chan<- prometheus.Metric, d *prometheus.Desc, value float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

// number is 1 for what is so, and 0 otherwise.
func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// read returns the records of the fleets that this replica decides for, and the fleets.
func (m *Metrics) read(ctx context.Context) (records []v1alpha1.NamespaceLeader, fleets map[string]bool, err error) {
	var clusters clusterv1.ClusterList
	if err := m.reader.List(ctx, &clusters, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, err
	}
	var all v1alpha1.NamespaceLeaderList
	if err := m.reader.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, err
	}
	fleets = map[string]bool{}
	for i := range clusters.Items {
		fleets[clusters.Items[i].Namespace] = true
	}
	for i := range all.Items {
		fleets[all.Items[i].Namespace] = true
	}
	maps.DeleteFunc(fleets, func(name string, _ bool) bool { return !m.decider.Serves(name) })
	records = slices.DeleteFunc(all.Items, func(r v1alpha1.NamespaceLeader) bool { return !fleets[r.Namespace] })
	return records, fleets, nil
}

func (m *Metrics) collectRecord(ch chan<- prometheus.Metric, r *v1alpha1.NamespaceLeader, now time.Time) {
	key := client.ObjectKeyFromObject(r)
	leader := r.Spec.Leader
	if until := r.Spec.NotBefore; r.Spec.State == v1alpha1.StateEnding && until != nil && until.Time.Before(now) {
		leader = "" // its term has ended, and no other cluster may lead
	}
	sendGauge(ch, leaderInfo, 1, key.Namespace, key.Name, leader, string(r.Spec.State))
	if since := r.Spec.Since; since != nil {
		sendGauge(ch, leaderSince, float64(since.UnixMicro())/1e6, key.Namespace, key.Name)
	}
	for _, kind := range []string{v1alpha1.ConditionFrozen, v1alpha1.ConditionFailoverPending} {
		if meta.IsStatusConditionTrue(r.Status.Conditions, kind) {
			sendGauge(ch, namespaceCondition, 1, key.Namespace, key.Name, kind)
		}
	}
	m.mu.Lock()
	f, ok := m.failovers[key]
	m.mu.Unlock()
	if ok && f.done {
		sendGauge(ch, failoverTook, f.took.Seconds(), key.Namespace, key.Name)
		sendGauge(ch, failoverFloor, f.floor.Seconds(), key.Namespace, key.Name)
	}
}

// collectPolicies sends the conditions of the policies in some fleets. One that is Unknown has no series.
func (m *Metrics) collectPolicies(ctx context.Context, ch chan<- prometheus.Metric, fleets map[string]bool) error {
	var policies v1alpha1.LeadershipPolicyList
	if err := m.reader.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for i := range policies.Items {
		p := &policies.Items[i]
		for _, c := range p.Status.Conditions {
			if !fleets[p.Namespace] || c.Status == metav1.ConditionUnknown {
				continue
			}
			sendGauge(ch, policyCondition, number(c.Status == metav1.ConditionTrue), p.Namespace, p.Name, c.Type)
		}
	}
	return nil
}

func (m *Metrics) collectMember(ch chan<- prometheus.Metric, member fleet.Member) {
	state := connected
	if member.Problem.Reason != "" {
		state = string(member.Problem.Reason)
	}
	sendGauge(ch, memberState, 1, member.Fleet, member.Name, state)
	if member.Drain.In(m.Clock.Now().Wall) {
		sendGauge(ch, drainedUntil, float64(member.Drain.Until.Unix()), member.Fleet, member.Name)
	}
	if !member.Expires.IsZero() {
		sendGauge(ch, credentialsExpire, float64(member.Expires.Unix()), member.Fleet, member.Name)
	}
	if work, ok := m.decider.Work(member.Key); ok {
		if work.Checked || member.Problem.Reason == "" { // what answers can be checked
			sendGauge(ch, guardInForce, number(work.Guarded), member.Fleet, member.Name)
		}
		sendGauge(ch, registrations, float64(work.Readers), member.Fleet, member.Name)
	}
}

// terms is what the cache of a member shows of the terms that it has.
type terms struct {
	any   bool          // it leads something by the records, and its Leases are cached
	age   time.Duration // of the oldest renewal among these
	ratio float64       // the largest part of a lease duration that has passed since
	live  []string      // the namespaces in which a Lease lets it act, whatever the records say
}

// termsOf returns the terms of a member.
func (m *Metrics) termsOf(ctx context.Context, member fleet.Member, records []v1alpha1.NamespaceLeader) (is terms) {
	leads := map[types.NamespacedName]bool{}
	for i := range records {
		r := &records[i]
		if r.Namespace == member.Fleet && r.Spec.Leader == member.Name && r.Spec.State == v1alpha1.StateLeading {
			leads[types.NamespacedName{Namespace: r.Name, Name: r.Spec.LeaseName}] = true
		}
	}
	if !member.Connected {
		return is
	}
	cl := member.Cluster()
	if cl == nil {
		return is
	}
	var leases coordinationv1.LeaseList
	if err := cl.GetCache().List(ctx, &leases, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).V(1).Info("The Leases of a member could not be listed for metrics",
			"cluster", member.String(), "err", err.Error())
		return is
	}
	now := m.Clock.Now().Wall
	for i := range leases.Items {
		l := &leases.Items[i]
		if holder := l.Spec.HolderIdentity; holder == nil || *holder != l.Annotations[v1alpha1.ClusterAnnotation] {
			continue // nearly all: reading them takes most of a scrape
		}
		c, _ := wire.Read(l)
		if !c.LeadsHere() {
			continue
		}
		if c.Live(now) && !member.IsFenced() { // of a cluster that is off its last Lease is seen for long
			is.live = append(is.live, l.Namespace)
		}
		if leads[client.ObjectKeyFromObject(l)] {
			age := now.Sub(c.RenewTime)
			is.any, is.age = true, max(is.age, age)
			is.ratio = max(is.ratio, age.Seconds()/max(time.Second, c.Duration).Seconds())
		}
	}
	return is
}

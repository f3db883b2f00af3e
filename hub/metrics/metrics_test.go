package metrics

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/controller"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/skew"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// clock advances by a second with each reading.
type clock struct{ boot time.Duration }

func (c *clock) Now() lease.Reading {
	c.boot += time.Second
	return lease.Reading{Wall: start.Add(c.boot), Boot: c.boot}
}

// world is what the metrics read.
type world struct {
	members   []fleet.Member
	serves    bool
	unchecked bool // the guard in east was not checked yet
}

func (w *world) Members(name string) (ms []fleet.Member) {
	for _, m := range w.members {
		if m.Fleet == name {
			ms = append(ms, m)
		}
	}
	return ms
}

func (w *world) Offsets() map[fleet.Key]skew.Interval {
	return map[fleet.Key]skew.Interval{east: {Lo: -50 * time.Millisecond, Hi: 20 * time.Millisecond}}
}

func (w *world) Serves(string) bool { return w.serves }

func (w *world) Work(key fleet.Key) (controller.Work, bool) {
	return controller.Work{Guarded: !w.unchecked, Checked: !w.unchecked, Readers: 3}, key == east
}

var east = fleet.Key{Fleet: "default", Name: "east"}

// newMetrics are those of a hub with the Cluster east, which is not connected any more.
func newMetrics(t *testing.T, objects ...client.Object) (*Metrics, *world) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, v1alpha1.AddToScheme} {
		musttest.Do(t, add(scheme))
	}
	w := &world{serves: true, members: []fleet.Member{{Key: east, Problem: fleet.Problem{Reason: reason.Unreachable}}}}
	m := New(Options{Version: "v1.2.3", Clock: &clock{}, Elected: func() bool { return true }})
	m.fleet, m.decider = w, w
	m.reader = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	return m, w
}

func cluster() client.Object {
	return &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: east.Fleet, Name: east.Name}}
}

// series returns all series as `name{labels}`, with their values.
func series(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families := musttest.Get(registry.Gather())(t)
	all := map[string]float64{}
	for _, f := range families {
		for _, s := range f.Metric {
			var labels []string
			for _, l := range s.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			value := s.GetGauge().GetValue() + s.GetCounter().GetValue()
			all[f.GetName()+"{"+strings.Join(labels, ",")+"}"] = value
		}
	}
	return all
}

func expect(t *testing.T, got map[string]float64, want map[string]float64) {
	t.Helper()
	for name, value := range want {
		if v, ok := got[name]; !ok || v != value {
			t.Errorf("%s: %v (there: %v), want %v", name, v, ok, value)
		}
	}
}

func without(t *testing.T, got map[string]float64, part string) {
	t.Helper()
	for name := range got {
		if strings.Contains(name, part) {
			t.Errorf("%s is still there", name)
		}
	}
}

func at(d time.Duration) *metav1.MicroTime { return &metav1.MicroTime{Time: start.Add(d)} }

func record(state v1alpha1.RecordState, leader string, epoch int64, why reason.Reason) *v1alpha1.NamespaceLeader {
	return &v1alpha1.NamespaceLeader{
		ObjectMeta: metav1.ObjectMeta{Namespace: east.Fleet, Name: "shop"},
		Spec:       v1alpha1.NamespaceLeaderSpec{State: state, Leader: leader, Epoch: epoch, Reason: why, Since: at(0)},
	}
}

// replaced are the records while east is replaced by west, from 0 to 9 s.
func replaced(why, how reason.Reason) (was, ending, leading *v1alpha1.NamespaceLeader) {
	ending = record(v1alpha1.StateEnding, "east", 7, why)
	ending.Spec.NotBefore = at(6 * time.Second)
	leading = record(v1alpha1.StateLeading, "west", 8, how)
	leading.Spec.AcquireTime = at(9 * time.Second)
	return record(v1alpha1.StateLeading, "east", 7, reason.Elected), ending, leading
}

func TestSeries(t *testing.T) {
	m, _ := newMetrics(t, cluster(), record(v1alpha1.StateLeading, "west", 7, reason.FailedOver))
	expect(t, series(t, m), map[string]float64{
		"leasecast_hub_elected{}": 1,
		"leasecast_namespace_leader_info{fleet=default,leader=west,namespace=shop,state=Leading}": 1,
		"leasecast_namespace_leader_since_timestamp_seconds{fleet=default,namespace=shop}":        float64(start.Unix()),
		"leasecast_member_state{fleet=default,member=east,state=Unreachable}":                     1,
		"leasecast_guard_in_force{fleet=default,member=east}":                                     1,
		"leasecast_reader_registrations{fleet=default,member=east}":                               3,
		"leasecast_clock_offset_seconds{bound=least,fleet=default,member=east}":                   -0.05,
		"leasecast_clock_offset_seconds{bound=most,fleet=default,member=east}":                    0.02,
	})
}

// An alert must not state that a guard is missing before the hub has checked it.
// A guard that is not checked although the cluster answers cannot be checked: that raises an alert.
func TestGuardHasNoSeriesBeforeItCanBeChecked(t *testing.T) {
	m, w := newMetrics(t, cluster())
	w.unchecked = true
	got := series(t, m)
	without(t, got, "leasecast_guard_in_force")
	expect(t, got, map[string]float64{"leasecast_reader_registrations{fleet=default,member=east}": 3})
	w.members[0].Problem = fleet.Problem{}
	expect(t, series(t, m), map[string]float64{"leasecast_guard_in_force{fleet=default,member=east}": 0})
}

// A record keeps the name of a leader that is lost while no other cluster may lead. After its term nobody leads.
func TestNobodyLeadsAfterATermWithoutSuccessor(t *testing.T) {
	_, ending, _ := replaced(reason.Unreachable, reason.FailedOver) // until 6 s; each reading takes a second
	m, _ := newMetrics(t, cluster(), ending)
	const leads = "leasecast_namespace_leader_info{fleet=default,leader=%s,namespace=shop,state=Ending}"
	expect(t, series(t, m), map[string]float64{
		fmt.Sprintf(leads, "east"): 1, "leasecast_waiting_namespaces{fleet=default,reason=Unreachable}": 1,
	})
	for range 6 {
		series(t, m)
	}
	got := series(t, m)
	expect(t, got, map[string]float64{fmt.Sprintf(leads, ""): 1})
	without(t, got, "leader=east")
}

// What operators ask for, and what is wrong with policies, has series while it is so.
func TestSeriesOfConditions(t *testing.T) {
	policy := &v1alpha1.LeadershipPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shops"}}
	policy.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionFencesInForce, Status: metav1.ConditionFalse},
		{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue},
		{Type: v1alpha1.ConditionClocksAgree, Status: metav1.ConditionUnknown},
	}
	o := record(v1alpha1.StateLeading, "east", 7, reason.Elected)
	o.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionFrozen, Status: metav1.ConditionTrue},
		{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue},
	}
	m, w := newMetrics(t, cluster(), o, policy)
	w.members[0].Drain.Until, w.members[0].Expires = start.Add(time.Hour), start.Add(2*time.Hour)
	got := series(t, m)
	without(t, got, "leasecast_waiting_namespaces") // its leader is there
	expect(t, got, map[string]float64{
		"leasecast_policy_condition{condition=FencesInForce,fleet=default,policy=shops}": 0,
		"leasecast_policy_condition{condition=Accepted,fleet=default,policy=shops}":      1,
		"leasecast_namespace_condition{condition=Frozen,fleet=default,namespace=shop}":   1,
		"leasecast_member_drained_until_timestamp_seconds{fleet=default,member=east}": float64(
			start.Add(time.Hour).Unix()),
		"leasecast_kubeconfig_expiry_timestamp_seconds{fleet=default,member=east}": float64(
			start.Add(2 * time.Hour).Unix()),
		"leasecast_contested_namespaces{fleet=default}": 0,
	})
	without(t, got, "ClocksAgree")
	without(t, got, "condition=Ready")
	w.members[0].Drain.Until, w.members[0].Expires = start, time.Time{}
	without(t, series(t, m), "drained")
	without(t, series(t, m), "expiry")
}

func TestOnlyTheHubThatDecidesHasSeriesOfItsFleets(t *testing.T) {
	m, w := newMetrics(t, cluster(), record(v1alpha1.StateLeading, "west", 7, reason.FailedOver))
	w.serves = false
	without(t, series(t, m), "default")
	w.serves = true
	m.Elected = func() bool { return false }
	got := series(t, m)
	without(t, got, "default")
	expect(t, got, map[string]float64{"leasecast_hub_elected{}": 0})
}

// watched has metrics count what a watch of records shows.
func watched(t *testing.T, m *Metrics) *controllertest.FakeInformer {
	t.Helper()
	informers := &informertest.FakeInformers{Scheme: m.reader.(client.Client).Scheme()}
	m.informers = informers
	err := m.watch(t.Context())
	records, findErr := informers.FakeInformerFor(t.Context(), &v1alpha1.NamespaceLeader{})
	musttest.Do(t, errors.Join(err, findErr))
	return records
}

func TestFailoverIsTimed(t *testing.T) {
	m, _ := newMetrics(t, cluster(), record(v1alpha1.StateLeading, "west", 8, reason.FailedOver))
	records := watched(t, m)
	was, ending, leading := replaced(reason.Unreachable, reason.FailedOver)
	later := ending.DeepCopy()
	later.Spec.NotBefore = at(8 * time.Second) // the last renewal came late
	records.Update(was, ending)
	without(t, series(t, m), "failover")
	records.Update(ending, later)
	revoked := later.DeepCopy()
	revoked.Spec.Epoch++
	records.Update(later, revoked)
	records.Update(revoked, leading)
	was, ending, again := replaced(reason.Drained, reason.HandedOver)
	records.Update(was, ending)
	records.Update(ending, again)
	expect(t, series(t, m), map[string]float64{
		"leasecast_last_failover_duration_seconds{fleet=default,namespace=shop}": 9,
		"leasecast_last_failover_floor_seconds{fleet=default,namespace=shop}":    8,
		"leasecast_leader_changes_total{fleet=default,reason=Unreachable}":       1,
		"leasecast_leader_changes_total{fleet=default,reason=FailedOver}":        1,
	})
	records.Delete(again)
	without(t, series(t, m), "failover") // of a record that was made again since
}

// What others change counts for them, also where nothing scrapes this replica.
func TestOnlyOwnChangesAreCounted(t *testing.T) {
	was, leads := &v1alpha1.NamespaceLeader{}, record(v1alpha1.StateLeading, "west", 8, reason.FailedOver)
	m, w := newMetrics(t, cluster(), leads)
	w.serves = false
	m.changed(was, leads)
	w.serves = true
	without(t, series(t, m), "changes")
	m.changed(was, leads)
	expect(t, series(t, m), map[string]float64{"leasecast_leader_changes_total{fleet=default,reason=FailedOver}": 1})
	w.serves = false
	series(t, m)
	w.serves = true
	without(t, series(t, m), "changes")
}

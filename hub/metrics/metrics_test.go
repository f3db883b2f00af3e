package metrics

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/controller"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/skew"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// clock goes by itself: one second with each look.
type clock struct{ boot time.Duration }

func (c *clock) Now() lease.Reading {
	c.boot += time.Second
	return lease.Reading{Wall: start.Add(c.boot), Boot: c.boot}
}

// world is what the metrics ask.
type world struct {
	members []fleet.Member
	serves  bool
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
	return controller.Work{Guarded: true, Readers: 3}, key == east
}

var east = fleet.Key{Fleet: "default", Name: "east"}

// newMetrics are those of a hub with the Cluster east, which is not connected any more.
func newMetrics(t *testing.T, objects ...client.Object) (*Metrics, *world) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
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
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, s := range f.Metric {
			var labels []string
			for _, l := range s.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			value := s.GetGauge().GetValue() + s.GetCounter().GetValue() + float64(s.GetHistogram().GetSampleCount())
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

func TestWhatIsTold(t *testing.T) {
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

func TestWhoDoesNotDecideTellsNothingOfTheFleet(t *testing.T) {
	m, w := newMetrics(t, cluster(), record(v1alpha1.StateLeading, "west", 7, reason.FailedOver))
	w.serves = false
	without(t, series(t, m), "default")
	w.serves = true
	m.Elected = func() bool { return false }
	got := series(t, m)
	without(t, got, "default")
	expect(t, got, map[string]float64{"leasecast_hub_elected{}": 0})
}

func TestAFailoverIsTimed(t *testing.T) {
	m, _ := newMetrics(t, cluster(), record(v1alpha1.StateLeading, "west", 8, reason.FailedOver))
	was := record(v1alpha1.StateLeading, "east", 7, reason.Elected)
	draining := record(v1alpha1.StateDraining, "east", 7, reason.Unreachable)
	draining.Spec.NotBefore = at(6 * time.Second)
	later := draining.DeepCopy()
	later.Spec.NotBefore = at(8 * time.Second) // the last renewal came late
	leading := record(v1alpha1.StateLeading, "west", 8, reason.FailedOver)
	leading.Spec.AcquireTime = at(9 * time.Second)
	m.changed(was, draining)
	without(t, series(t, m), "failover")
	m.changed(draining, later)
	m.changed(later, leading)
	expect(t, series(t, m), map[string]float64{
		"leasecast_last_failover_duration_seconds{fleet=default,namespace=shop}": 9,
		"leasecast_last_failover_floor_seconds{fleet=default,namespace=shop}":    8,
		"leasecast_leader_changes_total{fleet=default,reason=Unreachable}":       1,
		"leasecast_leader_changes_total{fleet=default,reason=FailedOver}":        1,
	})
}

func TestAPlannedChangeIsNoFailover(t *testing.T) {
	m, _ := newMetrics(t, cluster(), record(v1alpha1.StateLeading, "west", 8, reason.HandedOver))
	draining := record(v1alpha1.StateDraining, "east", 7, reason.PriorityChanged)
	draining.Spec.NotBefore = at(6 * time.Second)
	leading := record(v1alpha1.StateLeading, "west", 8, reason.HandedOver)
	leading.Spec.AcquireTime = at(9 * time.Second)
	m.changed(record(v1alpha1.StateLeading, "east", 7, reason.Elected), draining)
	m.changed(draining, leading)
	without(t, series(t, m), "failover")
}

// answers is a member that gives one answer to everything.
type answers struct {
	coordinationclient.LeaseInterface
	err error
}

func (a answers) Leases(string) coordinationclient.LeaseInterface { return a }

func (a answers) Create(
	_ context.Context,
	l *coordinationv1.Lease,
	_ metav1.CreateOptions,
) (*coordinationv1.Lease, error) {
	return l, a.err
}

func (a answers) Update(
	_ context.Context,
	l *coordinationv1.Lease,
	_ metav1.UpdateOptions,
) (*coordinationv1.Lease, error) {
	return l, a.err
}

func (a answers) Delete(context.Context, string, metav1.DeleteOptions) error { return a.err }

func TestWritesAreCountedByResultUntilTheirClusterGoes(t *testing.T) {
	resource := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	for result, err := range map[string]error{
		"done":       nil,
		"conflict":   apierrors.NewConflict(resource, "leasecast", nil),
		"refused":    apierrors.NewForbidden(resource, "leasecast", nil),
		"unanswered": errors.New("timeout"),
	} {
		t.Run(result, func(t *testing.T) {
			m, w := newMetrics(t, cluster())
			leases := m.Leases(east, answers{err: err}).Leases("shop")
			l := &coordinationv1.Lease{}
			created, got := leases.Create(t.Context(), l, metav1.CreateOptions{})
			updated, got2 := leases.Update(t.Context(), l, metav1.UpdateOptions{})
			got3 := leases.Delete(t.Context(), "leasecast", metav1.DeleteOptions{})
			if !errors.Is(got, err) || !errors.Is(got2, err) || !errors.Is(got3, err) || created != l || updated != l {
				t.Fatalf("the answers were changed: %v, %v, %v", got, got2, got3)
			}
			all := series(t, m)
			writes := "leasecast_lease_writes_total{fleet=default,member=east,result=" + result + "}"
			expect(t, all, map[string]float64{writes: 3})
			const latency = "leasecast_lease_write_duration_seconds{fleet=default,member=east}"
			if result == "unanswered" {
				without(t, all, latency) // how long an answer takes that never came
			} else {
				expect(t, all, map[string]float64{latency: 3})
			}
			w.members = nil
			series(t, m)
			without(t, series(t, m), "lease_write")
		})
	}
}

func TestTheSeriesOfAFleetGoWithIt(t *testing.T) {
	m, w := newMetrics(t, cluster(), record(v1alpha1.StateLeading, "west", 8, reason.FailedOver))
	m.changed(&v1alpha1.NamespaceLeader{}, record(v1alpha1.StateLeading, "west", 8, reason.FailedOver))
	expect(t, series(t, m), map[string]float64{"leasecast_leader_changes_total{fleet=default,reason=FailedOver}": 1})
	w.serves = false
	series(t, m)
	w.serves = true
	without(t, series(t, m), "changes")
}

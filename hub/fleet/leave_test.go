package fleet_test

import (
	"context"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	e2e "github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/health"
)

// probeOf is whether the member holds the probe Lease.
func probeOf(t *testing.T, s *e2e.Server) bool {
	t.Helper()
	return probeVersion(t, s) != ""
}

// probeVersion changes with each write of the probe Lease, and is empty if there is none.
func probeVersion(t *testing.T, s *e2e.Server) string {
	t.Helper()
	lease, err := direct(t, s).CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(),
		"leasecast-hub-probe", metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return lease.ResourceVersion
}

// removeProbe removes what an earlier test has left.
func removeProbe(t *testing.T, s *e2e.Server) {
	t.Helper()
	leases := direct(t, s).CoordinationV1().Leases(metav1.NamespaceSystem)
	if err := leases.Delete(t.Context(), "leasecast-hub-probe", metav1.DeleteOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

func (h *hub) awaitForgotten(t *testing.T, k fleet.Key) {
	t.Helper()
	await(t, k.Name+" is forgotten", retryPause, func() error {
		m, ok := h.Member(k)
		must.FailIf(ok, "it is still listed: %s", m.Problem.Message)
		begun, ended := h.engaged.count(k)
		return must.ErrorIf(begun != ended, "it is still engaged")
	})
}

func TestMemberWithoutLabelStaysUntilForgotten(t *testing.T) {
	h := startHub(t, "unlabelled", true)
	server := servers(t).Member("east")
	east := register(t, server, "unlabelled", "100")
	h.awaitMember(t, east, "east is healthy", retryPause, healthy)
	h.Forget(east) // takes part: nothing happens
	const others = "example.com/of-others"
	edit(t, east, func(c *clusterv1.Cluster) {
		delete(c.Labels, v1alpha1.PriorityLabel)
		c.Annotations[others] = "kept"
	})
	h.awaitMember(t, east, "it takes no part", retryPause, takesNoPart)
	if m, _ := h.Member(east); !healthy(m) {
		t.Errorf("connected %v, health %+v", m.Connected, m.Health(thresholds))
	}
	h.stop()

	// So it does after a restart of the hub.
	h = startHub(t, "unlabelled", true)
	h.awaitMember(t, east, "east is connected for cleaning up", retryPause, healthy)
	if !probeOf(t, server) {
		t.Error("there is no probe Lease")
	}
	h.Forget(east)
	h.awaitForgotten(t, east)
	if probeOf(t, server) {
		t.Error("the probe Lease was left behind")
	}
	if hasRights(t, server, t.Name()) {
		t.Error("the hub's rights were left behind")
	}
	if uid := getCluster(t, east).Annotations[v1alpha1.ClusterUIDAnnotation]; uid != "" {
		t.Errorf("the pin %q was left behind", uid)
	}
	if getCluster(t, east).Annotations[others] != "kept" {
		t.Error("the annotation of somebody else went with the pin")
	}
	// And it can come back.
	edit(t, east, func(c *clusterv1.Cluster) { c.Labels = map[string]string{v1alpha1.PriorityLabel: "7"} })
	h.awaitMember(t, east, "east is back", retryPause, func(m fleet.Member) bool { return healthy(m) && m.Priority == 7 })
}

func TestDeletedClusterStaysUntilForgotten(t *testing.T) {
	server := servers(t).Member("east")
	for name, moves := range map[string]bool{"deleted": false, "moved": true} {
		t.Run(name, func(t *testing.T) {
			h := startHub(t, name, true)
			east := register(t, server, name, "100")
			h.awaitMember(t, east, "east is healthy", retryPause, healthy)
			if moves {
				edit(t, east, func(c *clusterv1.Cluster) {
					c.Annotations = map[string]string{"clusterctl.cluster.x-k8s.io/delete-for-move": ""}
				})
				h.awaitMember(t, east, "the move is seen", retryPause, func(m fleet.Member) bool { return m.DeleteForMove })
			}
			musttest.Do(t, h.client.Delete(t.Context(), getCluster(t, east)))
			h.awaitMember(t, east, "the Cluster is gone", retryPause, hasProblem(reason.Gone))
			m, _ := h.Member(east)
			if !m.Connected || whoami(t, m) != ownUser(t.Name()) || !m.Gone || m.DeleteForMove != moves {
				t.Errorf("the connection is gone too, or the move was not seen: %+v", m)
			}
			h.Forget(east)
			h.awaitForgotten(t, east)
			if probeOf(t, server) != moves {
				t.Error("the probe Lease was left behind, or removed although the other hub may be using it")
			}
			if hasRights(t, server, t.Name()) {
				t.Error("the rights were left behind; another hub has rights of its own")
			}
		})
	}
}

// The connection of a deleted Cluster is kept for a while. It proves nothing about a new Cluster of the same name.
func TestClusterMadeAgainIsPinnedByItsOwnKubeconfig(t *testing.T) {
	h := startHub(t, "made-again", true)
	k := register(t, servers(t).Member("east"), "made-again", "100")
	h.awaitMember(t, k, "it is healthy", retryPause, healthy)
	old, _ := h.Member(k)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: k.Fleet, Name: k.Name + "-kubeconfig"}}
	musttest.Do(t, h.client.Delete(t.Context(), secret))
	musttest.Do(t, h.client.Delete(t.Context(), getCluster(t, k)))
	h.awaitMember(t, k, "the Cluster is gone", retryPause, func(m fleet.Member) bool { return m.Gone })

	registerAs(t, k, nil)
	h.awaitMember(t, k, "there is no kubeconfig", retryPause, func(m fleet.Member) bool {
		return !m.Gone && m.Problem.Reason == reason.NoKubeconfig
	})
	never(t, 2500*time.Millisecond, func() bool { // a pin is tried each second
		return getCluster(t, k).Annotations[v1alpha1.ClusterUIDAnnotation] != ""
	})

	setKubeconfig(t, k, proxied(t, servers(t).Member("west")))
	h.awaitMember(t, k, "it is healthy with its own kubeconfig", retryPause, healthy)
	m, _ := h.Member(k)
	if pin := getCluster(t, k).Annotations[v1alpha1.ClusterUIDAnnotation]; pin != m.UID || pin == old.UID {
		t.Errorf("pinned to %s, reached %s, the deleted Cluster was pinned to %s", pin, m.UID, old.UID)
	}
}

func TestStandbyIsWarmAndWritesNothing(t *testing.T) {
	h := startHub(t, "standby", false)
	server := servers(t).Member("west")
	removeProbe(t, server)
	installRights(t, server) // as the elected replica does
	west := register(t, server, "standby", "50")
	h.awaitMember(t, west, "west is connected", retryPause, func(m fleet.Member) bool { return m.Connected })
	m, _ := h.Member(west)
	// Probes are sent each second: in this time some would have been written.
	never(t, 2500*time.Millisecond, func() bool {
		m, _ = h.Member(west)
		begun, _ := h.engaged.count(west) // nobody writes into a cluster before it is pinned
		return m.Pinned || probeOf(t, server) || begun > 0
	})
	if v := m.Health(thresholds); v.State != health.Unknown {
		t.Errorf("health %+v", v)
	}
	h.mayWrite.Store(true)
	took := h.awaitMember(t, west, "west is healthy once this replica may write", 5*time.Second, healthy)
	t.Logf("healthy %v after the election", took)
	awaitEngaged(t, &h.engaged, west)
	// Writes that nobody sends are not held against the member, not even by the first failure after.
	h.mayWrite.Store(false)
	var before string
	never(t, time.Second, func() bool { before = probeVersion(t, server); return false }) // one may be under way
	never(t, thresholds.UnreachableAfter+time.Second, func() bool {
		m, _ := h.Member(west)
		return !healthy(m) || probeVersion(t, server) != before
	})
	server.Proxy().BlackHole()
	t.Cleanup(server.Proxy().Heal)
	h.mayWrite.Store(true)
	var failed health.Verdict
	h.awaitMember(t, west, "a probe fails", retryPause, func(m fleet.Member) bool {
		failed = m.Health(thresholds)
		return !failed.Answering
	})
	if failed.State != health.Healthy {
		t.Errorf("one failure after a rest: %+v", failed)
	}
}

// A cluster that a manager has must not end before the controllers start. So none is engaged before the election.
func TestMembersAreEngagedWhenThisReplicaIsElected(t *testing.T) {
	makeNamespace(t, "takeover")
	other := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "takeover", Name: "hub"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("other"), LeaseDurationSeconds: ptr.To[int32](60),
			AcquireTime: ptr.To(metav1.NowMicro()), RenewTime: ptr.To(metav1.NowMicro()),
		},
	}
	elections := direct(t, servers(t).Hub()).CoordinationV1().Leases("takeover")
	_ = musttest.Get(elections.Create(t.Context(), other, metav1.CreateOptions{}))(t)
	h, mgr := newHub(t, "takeover", true, manager.Options{
		LeaderElection: true, LeaderElectionID: "hub", LeaderElectionNamespace: "takeover",
		LeaseDuration: ptr.To(time.Minute),
		RenewDeadline: ptr.To(40 * time.Second),
		RetryPeriod:   ptr.To(200 * time.Millisecond),
	})
	h.start(t, mgr)
	east := register(t, servers(t).Member("east"), "takeover", "100")
	west := register(t, servers(t).Member("west"), "takeover", "50")
	h.awaitMember(t, east, "the standby is connected to east", retryPause, healthy)
	h.awaitMember(t, west, "the standby is connected to west", retryPause, healthy)
	edit(t, west, func(c *clusterv1.Cluster) { delete(c.Labels, v1alpha1.PriorityLabel) })
	h.awaitMember(t, west, "west takes no part", retryPause, takesNoPart)
	h.Forget(west)
	h.awaitForgotten(t, west)
	if begun, _ := h.engaged.count(east); begun != 0 {
		t.Error("east is engaged before the election")
	}

	musttest.Do(t, elections.Delete(t.Context(), "hub", metav1.DeleteOptions{}))
	awaitEngaged(t, &h.engaged, east)
	edit(t, west, func(c *clusterv1.Cluster) { c.Labels = map[string]string{v1alpha1.PriorityLabel: "50"} })
	awaitEngaged(t, &h.engaged, west)
}

// awaitEngaged waits until a controller has a member, once.
func awaitEngaged(t *testing.T, e interface {
	count(fleet.Key) (begun, ended int)
}, k fleet.Key) {
	t.Helper()
	await(t, k.Name+" is engaged once", retryPause, func() error {
		begun, ended := e.count(k)
		return must.ErrorIf(begun != 1 || ended != 0, "engaged %d times, ended %d times", begun, ended)
	})
}

// lastLook is a controller that looks at what it works in once it has been stopped.
type lastLook struct {
	engagements
	worksIn context.Context
	saw     error
}

func (l *lastLook) Engage(ctx context.Context, name multicluster.ClusterName, cl cluster.Cluster) error {
	l.worksIn = ctx
	return l.engagements.Engage(ctx, name, cl)
}

func (l *lastLook) Start(ctx context.Context) error {
	<-ctx.Done()
	l.saw = l.worksIn.Err()
	return nil
}

// Otherwise a hub that is stopped reports that every cluster has left, and nobody corrects that until the next one.
func TestMembersLeaveAfterTheControllersOfAHubThatStops(t *testing.T) {
	h, mgr := newHub(t, "stops", true, manager.Options{})
	controller := &lastLook{}
	musttest.Do(t, mgr.Add(controller))
	h.start(t, mgr)
	east := register(t, servers(t).Member("east"), "stops", "100")
	h.awaitMember(t, east, "east is connected", retryPause, healthy)
	awaitEngaged(t, controller, east)
	h.stop()
	if controller.saw != nil {
		t.Errorf("when the controller stopped, its work in east was %v", controller.saw)
	}
	if err := controller.worksIn.Err(); err == nil {
		t.Error("the hub has stopped, and its work in east goes on")
	}
}

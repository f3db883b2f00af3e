package fleet_test

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/skew"
)

// A real API server on this machine has the hub's clock. How closely that is seen depends on the
// machine; that it is seen does not.
func TestTheClockOfARealMemberIsMeasured(t *testing.T) {
	h := startHub(t, "clocks", true)
	k := register(t, servers(t).Member("east"), "clocks", "1")
	h.awaitMember(t, k, "its clock is within 250 ms", retryPause, func(m fleet.Member) bool {
		return m.Clocks(250*time.Millisecond).State == skew.Within
	})
	m, _ := h.Member(k)
	i, ok := m.Clock()
	if !ok || i.Lo > 0 || i.Hi < 0 {
		t.Errorf("the clock of this machine is %+v from itself, %v", i, ok)
	}
	t.Logf("measured to within %v", i.Hi-i.Lo)
}

// Another API server of the member is known by its Lease only.
func TestAnotherAPIServersClockIsMeasured(t *testing.T) {
	c, err := kubernetes.NewForConfig(servers(t).Member("east").AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	leases := c.CoordinationV1().Leases(metav1.NamespaceSystem)
	own, err := leases.List(t.Context(), metav1.ListOptions{LabelSelector: "apiserver.kubernetes.io/identity=kube-apiserver"})
	if err != nil || len(own.Items) == 0 {
		t.Fatalf("the API server has no Lease of its own: %v", err)
	}
	if age := time.Since(own.Items[0].Spec.RenewTime.Time); len(own.Items) == 1 && (age < 0 || age > retryPause) {
		t.Errorf("it was renewed %v ago", age)
	}
	l, err := leases.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "apiserver-other", Labels: own.Items[0].Labels},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("other"), LeaseDurationSeconds: ptr.To[int32](3600),
			RenewTime: ptr.To(metav1.NewMicroTime(time.Now().Add(time.Hour))),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := leases.Delete(t.Context(), l.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}()
	h := startHub(t, "peers", true)
	h.probe("peers", time.Second)
	k := register(t, servers(t).Member("east"), "peers", "1")
	h.awaitMember(t, k, "its clock is an hour ahead", retryPause, func(m fleet.Member) bool {
		v := m.Clocks(time.Second)
		return v.State == skew.Beyond && v.Clock == "API server apiserver-other" && v.Offset.Lo > 59*time.Minute
	})
}

// A replica that has no right to write lists nothing: one is enough.
func TestAStandbyListsNoHosts(t *testing.T) {
	c, err := kubernetes.NewForConfig(servers(t).Member("west").AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.CoordinationV1().Leases("kube-node-lease").Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "machine"},
		Spec:       coordinationv1.LeaseSpec{RenewTime: ptr.To(metav1.NewMicroTime(time.Now().Add(time.Hour)))},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.CoordinationV1().Leases("kube-node-lease").Delete(t.Context(), l.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}()
	h := startHub(t, "standby-clocks", false)
	h.probe("standby-clocks", time.Second)
	k := register(t, servers(t).Member("west"), "standby-clocks", "1")
	h.awaitMember(t, k, "its clock is measured", retryPause, func(m fleet.Member) bool {
		return m.Clocks(time.Second).State == skew.Within
	})
	off := func(m fleet.Member) bool { return m.Clocks(time.Second).State == skew.Beyond }
	never(t, 3*time.Second, func() bool {
		m, _ := h.Member(k)
		return off(m)
	})
	h.mayWrite.Store(true)
	h.awaitMember(t, k, "the clock of its host is off", retryPause, off)
}

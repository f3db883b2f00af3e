package integration

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/hub"
)

// foreseen is what what-if prints of a namespace.
type foreseen struct {
	Namespace, Leader, Next string
	WithinSeconds           int
}

// serveDebugging has the hub serve its metrics port at the returned address, and gives its account there the rights of
// config/rbac.
func (w *world) serveDebugging() (address string) {
	port, err := fleet.ReservePort()
	w.Must(err)
	w.MetricsAddress = fmt.Sprintf("127.0.0.1:%d", port)
	ctx, account := w.T.Context(), metav1.ObjectMeta{Namespace: w.System, Name: hub.CasesAccount}
	w.Must(w.Hub.Create(ctx, &corev1.ServiceAccount{ObjectMeta: account}))
	w.Must(w.Hub.Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: w.System + "-what-if"},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{hub.CasesPath}}},
	}))
	w.Must(w.Hub.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: w.System + "-what-if"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: w.System + "-what-if"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.System, Name: hub.CasesAccount}},
	}))
	return w.MetricsAddress
}

// foresees runs what-if with the hub's help.
func (w *world) foresees(address string, assumed ...string) (all map[string]foreseen) {
	w.T.Helper()
	args := append([]string{"what-if", "--hub-address", address, "-o", "json"}, assumed...)
	out, code := w.plugin("", args...)
	var list []foreseen
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != 0 {
		w.T.Fatalf("%v: code %d, %v: %s", assumed, code, err, out)
	}
	all = map[string]foreseen{}
	for _, is := range list {
		all[is.Namespace] = is
	}
	return all
}

// What-if foresees a hundred changes: ten at random, of ten namespaces each, under three policies.
func TestWhatIfAgreesWithWhatThenHappens(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brief, three)
	address := w.serveDebugging()
	var namespaces []string
	for i := range 10 {
		namespaces = append(namespaces, w.namespace(fmt.Sprint(i), all...))
	}
	w.Policy("prefers", namespaces[:4]...)
	spreads, overrides := w.NewPolicy("spreads", namespaces[4:7]...), w.NewPolicy("overrides", namespaces[7:]...)
	spreads.Spec.Placement = v1alpha1.PlacementSpread
	overrides.Spec.Overrides = []v1alpha1.Override{{Namespace: namespaces[7], Cluster: "south"}}
	w.Must(w.Hub.Create(t.Context(), spreads))
	w.Must(w.Hub.Create(t.Context(), overrides))
	w.startHub()
	for _, ns := range namespaces {
		w.awaitLed(ns)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // it chooses what a test does
	cases, moved := 0, 0
	for range 10 {
		cluster, priority := all[random.IntN(len(all))], fmt.Sprint(50*(1+random.IntN(8)))
		var change, undo func()
		var assumed []string
		switch random.IntN(3) {
		case 0:
			assumed, change = []string{"--drain", cluster}, func() { w.drain(cluster, inAnHour()) }
			undo = func() { w.drain(cluster, "") }
		case 1:
			assumed = []string{"--priority", cluster + "=" + priority}
			change, undo = func() { w.setPriority(cluster, priority) }, func() {}
		default:
			assumed, change = []string{"--without", cluster}, w.Servers.Member(cluster).Proxy().BlackHole
			undo = w.Servers.Member(cluster).Proxy().Heal
		}
		t.Log(strings.Join(assumed, " "))
		will := w.foresees(address, assumed...)
		began := time.Now()
		change()
		for _, ns := range namespaces {
			is := will[ns]
			cases++
			if is.Next != is.Leader {
				moved++
				limit := time.Duration(is.WithinSeconds) * time.Second
				w.Eventually(fmt.Sprintf("%s leads %s", is.Next, ns), limit+soon, func() error { return w.ledBy(is.Next, ns) })
				within(t, ns+" is led again", time.Since(began), limit+2*time.Second)
			}
		}
		w.awaitUnlike(cluster, namespaces[0], assumed[0])
		for _, ns := range namespaces { // also those that were to stay where they are
			if err := w.ledBy(will[ns].Next, ns); err != nil {
				t.Errorf("%s: %v", strings.Join(assumed, " "), err)
			}
		}
		undo()
		w.awaitEligible(cluster, namespaces[0])
	}
	if cases != 100 || moved == 0 {
		t.Errorf("%d cases, %d changes", cases, moved)
	}
}

// awaitUnlike waits until the hub has seen what was done to a cluster.
func (w *world) awaitUnlike(cluster, namespace, how string) {
	switch how {
	case "--drain":
		w.awaitUnfit(cluster, namespace, reason.Drained)
	case "--without":
		w.awaitUnfit(cluster, namespace, reason.Unreachable)
	}
}

// ledBy checks by the record that a cluster leads a namespace.
func (w *world) ledBy(cluster, namespace string) error {
	r, err := w.Record(namespace)
	if err != nil {
		return err
	}
	return must.ErrorIf(r.Spec.Leader != cluster || r.Spec.State != v1alpha1.StateLeading, "%s is %s by %s, for %s",
		namespace, r.Spec.State, r.Spec.Leader, cluster)
}

// awaitLed waits until some cluster leads a namespace.
func (w *world) awaitLed(namespace string) {
	w.Eventually(namespace+" is led", firstElection, func() error {
		r, err := w.Record(namespace)
		return must.ErrorIf(err != nil || r.Spec.State != v1alpha1.StateLeading, "%v", err)
	})
}

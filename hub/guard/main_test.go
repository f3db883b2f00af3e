package guard_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/seal"
)

// patience bounds every wait for something that a real API server does by itself. Usually that
// takes about a second.
const patience = 30 * time.Second

// member is a real API server. The tests of this package share it and run one after the other; each
// calls standing first.
var member *fleet.Server

func TestMain(m *testing.M) {
	os.Exit(fleet.Main(m, nil, func(_ context.Context, f *fleet.Fleet, _ string) error {
		member = f.Hub()
		return nil
	}))
}

// clientFor makes a client whose every request is bounded.
func clientFor(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	config.Timeout = patience
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// administrator is of the group system:masters, as in the kubeconfigs of Cluster API.
func administrator(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	return clientFor(t, member.AdminConfig())
}

// hubRules are those of config/member's ClusterRole for the hub.
func hubRules(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	content, err := os.ReadFile("../../config/member/hub_role.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var role rbacv1.ClusterRole
	if err := yaml.UnmarshalStrict(content, &role); err != nil {
		t.Fatal(err)
	}
	return role.Rules
}

// serviceAccount has the rules of config/member's ClusterRole for the hub, less those that
// without drops.
func serviceAccount(t *testing.T, name string, without func(rbacv1.PolicyRule) bool) *kubernetes.Clientset {
	t.Helper()
	return account(t, name, slices.DeleteFunc(hubRules(t), without)...)
}

// account is a ServiceAccount with these rules in the whole cluster.
func account(t *testing.T, name string, rules ...rbacv1.PolicyRule) *kubernetes.Clientset {
	t.Helper()
	config, err := member.ServiceAccountConfig(t.Context(), "leasecast-system", name, rules)
	if err != nil {
		t.Fatal(err)
	}
	return clientFor(t, config)
}

func nothing(rbacv1.PolicyRule) bool { return false }

// tenant is a user to whom a RoleBinding gives a ClusterRole in one namespace.
func tenant(t *testing.T, user, namespace, role string) *kubernetes.Clientset {
	t.Helper()
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: user + "-", Namespace: namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	if _, err := administrator(t).RbacV1().RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config, err := member.UserConfig(user)
	if err != nil {
		t.Fatal(err)
	}
	client := clientFor(t, config)
	eventually(t, "the RoleBinding of "+user+" counts", func(ctx context.Context) error {
		_, err := client.CoordinationV1().Leases(namespace).List(ctx, metav1.ListOptions{})
		return err
	})
	return client
}

// leaseEditor may do everything with Leases in all namespaces, and nothing else.
func leaseEditor(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	return account(t, "lease-editor", rbacv1.PolicyRule{
		APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"*"},
	})
}

// newNamespace makes a namespace and deletes it after the test.
func newNamespace(t *testing.T) string {
	t.Helper()
	client := administrator(t)
	name := newDoomedNamespace(t)
	t.Cleanup(func() {
		if err := client.CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete namespace %s: %v", name, err)
		}
	})
	return name
}

// newDoomedNamespace makes a namespace that the test deletes itself.
func newDoomedNamespace(t *testing.T) string {
	t.Helper()
	ns, err := administrator(t).CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "tenant-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ns.Name
}

// eventually waits until the condition returns nil.
func eventually(t *testing.T, what string, condition func(ctx context.Context) error) {
	t.Helper()
	last := errors.New("never asked")
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		if err := condition(ctx); err != nil {
			last = err
			return false, nil
		}
		return true, nil
	})
	if err != nil {
		t.Fatalf("waiting until %s: %v; last: %v", what, err, last)
	}
}

// newLease is what the hub writes.
func newLease(t *testing.T, namespace, name string) *coordinationv1.Lease {
	t.Helper()
	stamp := time.Now()
	l := &coordinationv1.Lease{}
	err := seal.Write(seal.Key("key"), lease.Content{
		Term: lease.Term{
			Holder: "east.default", Epoch: 1000, AcquireTime: stamp, RenewTime: stamp, Duration: 15 * time.Second,
		},
		Namespace: namespace, Name: name, Cluster: "east.default", ClusterUID: "uid", Hub: "hub",
	}, l)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// newForeign is the Lease of somebody's own election: the same content without our marks.
func newForeign(t *testing.T, namespace, name string) *coordinationv1.Lease {
	t.Helper()
	l := newLease(t, namespace, name)
	stripMarks(l)
	return l
}

func stripMarks(l *coordinationv1.Lease) {
	for _, marks := range []map[string]string{l.Labels, l.Annotations} {
		for key := range marks {
			if strings.HasPrefix(key, "leasecast.dev/") {
				delete(marks, key)
			}
		}
	}
}

// standing waits until the guard is in force.
func standing(t *testing.T) {
	t.Helper()
	h := hubOf(t)
	eventually(t, "the guard is in force", func(ctx context.Context) error { return h.guards(ctx) })
}

// parallel runs a test beside others that need no more than the guard, and namespaces of their own.
func parallel(t *testing.T) {
	t.Helper()
	t.Parallel()
	standing(t)
}

// hub is a hub that keeps the guard and the fences of one test.
type hub struct {
	*guard.Keeper
	fleet  string
	fences []guard.Fence
	spaces []map[string]bool
	mended int
}

var hubs struct {
	sync.Mutex
	all map[string]*hub
}

// hubOf returns the hub of a test and its subtests. It has a fleet of its own.
func hubOf(t *testing.T) *hub {
	t.Helper()
	root, _, _ := strings.Cut(t.Name(), "/")
	hubs.Lock()
	defer hubs.Unlock()
	h := hubs.all[root]
	if h == nil {
		h = newHub(administrator(t), fmt.Sprintf("fleet-%d", len(hubs.all)))
		if hubs.all == nil {
			hubs.all = map[string]*hub{}
		}
		hubs.all[root] = h
	}
	return h
}

func newHub(client kubernetes.Interface, fleetName string) *hub {
	h := &hub{fleet: fleetName}
	began := time.Now()
	h.Keeper = guard.NewKeeper(guard.Options{
		Member: client, Hub: "hub", Fleet: fleetName, Log: logr.Discard(),
		Now:     func() time.Duration { return time.Hour + time.Since(began) },
		Changed: func() {}, Mended: func(string) { h.mended++ },
	})
	return h
}

// guards has the hub check all at once, and returns why the guard is not in force.
func (h *hub) guards(ctx context.Context) error {
	h.Forget()
	h.turn(ctx)
	return h.Unguarded()
}

func (h *hub) turn(ctx context.Context) {
	h.Keep(ctx, guard.Desired{Fences: h.fences, Spaces: h.spaces})
}

// wants has the hub want a fence in these namespaces. Those that are true have their Lease.
func (h *hub) wants(f guard.Fence, active map[string]bool) {
	if i := slices.IndexFunc(h.fences, func(other guard.Fence) bool { return other.Name() == f.Name() }); i >= 0 {
		h.fences[i], h.spaces[i] = f, active
		return
	}
	h.fences, h.spaces = append(h.fences, f), append(h.spaces, active)
}

// drops has the hub remove all of its fences.
func (h *hub) drops(t *testing.T) {
	t.Helper()
	h.fences, h.spaces = nil, nil
	h.Forget()
	h.turn(context.WithoutCancel(t.Context()))
}

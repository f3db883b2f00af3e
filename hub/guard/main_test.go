package guard_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/leasecast/leasecast/config/member"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/guard"
)

// patience bounds every wait for something that a real API server does by itself. It usually takes about a second.
const patience = 30 * time.Second

// server is a real API server. The tests share it, and each one calls guarded first. Some run in parallel, in
// namespaces of their own.
var server *fleet.Server

func TestMain(m *testing.M) {
	os.Exit(fleet.Main(m, nil, func(_ context.Context, f *fleet.Fleet, _ string) error {
		server = f.Hub()
		return nil
	}))
}

// clientFor returns a client whose requests are bounded.
func clientFor(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	config.Timeout = patience
	client := musttest.Get(kubernetes.NewForConfig(config))(t)
	return client
}

// administrator is in the group system:masters, as in the kubeconfigs of Cluster API.
func administrator(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	return clientFor(t, server.AdminConfig())
}

// impersonating is an administrator who impersonates a user with all rights.
func impersonating(t *testing.T, config *rest.Config, user string) *kubernetes.Clientset {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	return clientFor(t, config)
}

var (
	everyResource = rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}
	everyURL      = rbacv1.PolicyRule{NonResourceURLs: []string{"*"}, Verbs: []string{"*"}}
)

func onLeases(verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: verbs}
}

// hubRules are the rules of config/member.
func hubRules(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	var role rbacv1.ClusterRole
	musttest.Do(t, yaml.UnmarshalStrict(member.HubRole, &role))
	return role.Rules
}

// account is a ServiceAccount in the namespace leasecast-system with these rules in the whole cluster.
func account(t *testing.T, name string, rules ...rbacv1.PolicyRule) *kubernetes.Clientset {
	t.Helper()
	return clientFor(t, accountConfig(t, "leasecast-system", name, rules...))
}

func accountConfig(t *testing.T, namespace, name string, rules ...rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	accounts.Lock() // parallel tests may create the same account, with the same rules
	defer accounts.Unlock()
	config := musttest.Get(server.ServiceAccountConfig(t.Context(), namespace, name, rules))(t)
	return config
}

var accounts sync.Mutex

// tenant is a user to whom RoleBindings give a ClusterRole in these namespaces.
func tenant(t *testing.T, user, role string, namespaces ...string) *kubernetes.Clientset {
	t.Helper()
	config := musttest.Get(server.UserConfig(user))(t)
	client := clientFor(t, config)
	for _, ns := range namespaces {
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{GenerateName: user + "-"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		}
		musttest.Get(administrator(t).RbacV1().RoleBindings(ns).Create(t.Context(), binding, metav1.CreateOptions{}))(t)
		eventually(t, "the RoleBinding of "+user+" counts", func(ctx context.Context) error {
			_, err := client.CoordinationV1().Leases(ns).List(ctx, metav1.ListOptions{})
			return err
		})
	}
	return client
}

// newNamespace makes a namespace and deletes it after the test.
func newNamespace(t *testing.T) string {
	t.Helper()
	client, name := administrator(t), newDoomedNamespace(t, "tenant-")
	t.Cleanup(func() {
		if err := client.CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete namespace %s: %v", name, err)
		}
	})
	return name
}

// newDoomedNamespace makes a namespace that the test deletes itself.
func newDoomedNamespace(t *testing.T, prefix string) string {
	t.Helper()
	ns := musttest.Get(administrator(t).CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}, metav1.CreateOptions{}))(t)
	return ns.Name
}

// eventually waits until the condition returns nil.
func eventually(t *testing.T, what string, condition func(ctx context.Context) error) {
	t.Helper()
	musttest.Eventually(t, patience, what, condition)
}

// guarded waits until the guard is in force.
func guarded(t *testing.T) {
	t.Helper()
	h := hubOf(t)
	eventually(t, "the guard is in force", h.guards)
}

// parallel runs a test beside others that need no more than the guard, and namespaces of their own.
func parallel(t *testing.T) {
	t.Helper()
	t.Parallel()
	guarded(t)
}

// hub keeps the guard and the fences of one test.
type hub struct {
	*guard.Keeper
	fleet    string
	desired  guard.Desired
	mended   int
	silences int // that were logged
	changed  atomic.Int64
	now      func() time.Duration
	at       time.Duration // of a clock that the test sets
}

var hubs sync.Map // by the names of tests

// hubOf returns the hub of a test and its subtests. It has a fleet of its own.
func hubOf(t *testing.T) *hub {
	t.Helper()
	root, _, _ := strings.Cut(t.Name(), "/")
	if h, ok := hubs.Load(root); ok {
		return h.(*hub)
	}
	h := newHub(administrator(t), strings.ToLower(strings.ReplaceAll(root[len("Test"):], "_", "-")))
	hubs.Store(root, h)
	return h
}

func newHub(client kubernetes.Interface, fleetName string) *hub {
	h, began := &hub{fleet: fleetName}, time.Now()
	h.now = func() time.Duration { return time.Hour + time.Since(began) }
	h.Keeper = guard.NewKeeper(guard.Options{
		Member: client, Hub: "hub", Fleet: fleetName,
		Log: funcr.New(func(_, args string) {
			if strings.Contains(args, "cannot be checked") {
				h.silences++
			}
		}, funcr.Options{}),
		Now: func() time.Duration { return h.now() }, MayWrite: func() bool { return true },
		Changed: func() { h.changed.Add(1) }, Mended: func(string) { h.mended++ },
	})
	return h
}

func (h *hub) turn(ctx context.Context) { h.Keep(ctx, h.desired) }

// guards has the hub check everything at once, and returns why the guard is not in force.
func (h *hub) guards(ctx context.Context) error {
	h.Forget()
	h.turn(ctx)
	return h.Unguarded()
}

// keeps has the hub keep a fence until it is in force in these namespaces. Those that are true have their Lease, and
// so the gate.
func (h *hub) keeps(t *testing.T, f guard.Fence, active map[string]bool) {
	t.Helper()
	h.wants(f, active)
	eventually(t, "the fence is in force", func(ctx context.Context) error {
		h.turn(ctx)
		return h.Unfenced(f, "")
	})
}

func (h *hub) wants(f guard.Fence, active map[string]bool) {
	d := &h.desired
	i := slices.IndexFunc(d.Fences, func(other guard.Fence) bool { return other.Name() == f.Name() })
	if i < 0 {
		d.Fences, d.Spaces = append(d.Fences, f), append(d.Spaces, active)
		return
	}
	d.Fences[i], d.Spaces[i] = f, active
}

// drops has the hub remove all of its fences.
func (h *hub) drops(t *testing.T) {
	h.desired = guard.Desired{}
	h.Forget()
	h.turn(context.WithoutCancel(t.Context()))
}

package fleet_test

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	e2e "github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/fleet"
)

// rotationBound is how soon a changed Secret must count: two seconds, and two for a machine that pauses.
const rotationBound = 4 * time.Second

// enough is what the fleet asks of a member.
var enough = []rbacv1.PolicyRule{
	{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "list", "watch"}},
	{
		APIGroups: []string{"coordination.k8s.io"},
		Resources: []string{"leases"},
		Verbs:     []string{"get", "list", "watch", "create", "update", "delete"},
	},
}

// account makes a kubeconfig for a service account of a server, through its proxy.
func account(t *testing.T, s *e2e.Server, name string, rules []rbacv1.PolicyRule) []byte {
	t.Helper()
	config := musttest.Get(s.ServiceAccountConfig(t.Context(), "leasecast-test", name, rules))(t)
	return kubeconfigOf(t, s, config)
}

func kubeconfigOf(t *testing.T, s *e2e.Server, config *rest.Config) []byte {
	t.Helper()
	k := musttest.Get(e2e.Kubeconfig(s.Name(), s.ViaProxy(config)))(t)
	return k
}

func direct(t *testing.T, s *e2e.Server) *kubernetes.Clientset {
	t.Helper()
	c := musttest.Get(kubernetes.NewForConfig(s.AdminConfig()))(t)
	return c
}

// refusedUser is who an API server refuses something.
var refusedUser = regexp.MustCompile(`User "([^"]+)" cannot list`)

// whoami returns who the hub is in a member, over the connection for renewals: only an administrator may list these.
func whoami(t *testing.T, m fleet.Member) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err := m.Writer().RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{Limit: 1})
	if err == nil {
		return administrator
	}
	if found := refusedUser.FindStringSubmatch(err.Error()); found != nil {
		return found[1]
	}
	return err.Error()
}

// administrator is the user of the administrators' kubeconfigs.
const administrator = "leasecast-fleet-admin"

func awaitUser(t *testing.T, h *hub, k fleet.Key, user string) time.Duration {
	t.Helper()
	return await(t, "the hub acts as "+user, rotationBound, func() error {
		m, _ := h.Member(k)
		got := whoami(t, m)
		return must.ErrorIf(got != user, "it acts as %s", got)
	})
}

// managedLease makes a Lease in the member that its caches must show, until the test is over.
func managedLease(t *testing.T, s *e2e.Server) string {
	t.Helper()
	leases := direct(t, s).CoordinationV1().Leases(metav1.NamespaceDefault)
	lease := musttest.Get(leases.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "managed-", Labels: map[string]string{v1alpha1.ManagedLabel: "true"},
	}}, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		if err := leases.Delete(context.Background(), lease.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return lease.Name
}

// awaitCached changes something in the member, and waits until the caches show it.
func awaitCached(t *testing.T, h *hub, k fleet.Key, s *e2e.Server) time.Duration {
	t.Helper()
	name := managedLease(t, s)
	m, _ := h.Member(k)
	return await(t, "the caches follow", rotationBound, func() error {
		key := client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: name}
		return m.Cluster().GetClient().Get(t.Context(), key, &coordinationv1.Lease{})
	})
}

func TestRotatedKubeconfigCountsWithoutANewCluster(t *testing.T) {
	h := startHub(t, "rotate", true)
	server := servers(t).Member("east")
	first := account(t, server, "first", enough)
	east := fleet.Key{Fleet: "rotate", Name: "east"}
	registerAs(t, east, first)
	h.awaitMember(t, east, "east is healthy", retryPause, healthy)
	awaitUser(t, h, east, "system:serviceaccount:leasecast-test:first")
	m, _ := h.Member(east)
	cl := m.Cluster()

	t.Run("another token of the same connection", func(t *testing.T) {
		before := server.Proxy().Stats().Connections
		setKubeconfig(t, east, account(t, server, "second", enough))
		t.Logf("renewals act as the new user after %v", awaitUser(t, h, east, "system:serviceaccount:leasecast-test:second"))
		t.Logf("caches follow after %v", awaitCached(t, h, east, server))
		if after := server.Proxy().Stats().Connections; after != before {
			t.Errorf("%d connections became %d: a new token must not cost any", before, after)
		}
	})
	t.Run("another user by certificate, and the old one revoked", func(t *testing.T) {
		config := musttest.Get(server.UserConfig("third", "system:masters"))(t)
		revoke(t, server, "second")
		setKubeconfig(t, east, kubeconfigOf(t, server, config))
		t.Logf("renewals act for the new user after %v",
			awaitUser(t, h, east, ownUser("TestRotatedKubeconfigCountsWithoutANewCluster")))
		t.Logf("caches follow after %v", awaitCached(t, h, east, server))
		// One connection for caches and one for renewals remain. The old one for renewals has some seconds
		// for what was under way.
		await(t, "the old connections end", retryPause, func() error {
			n := server.Proxy().Stats().Connections
			return must.ErrorIf(n > 2, "there are %d", n)
		})
	})
	m, _ = h.Member(east)
	if begun, ended := h.engaged.count(east); begun != 1 || ended != 0 || m.Cluster() != cl {
		t.Errorf("engaged %d times, ended %d times, same cluster %v", begun, ended, m.Cluster() == cl)
	}
	if !healthy(m) || m.Problem.Reason != "" {
		t.Errorf("health %+v, problem %v", m.Health(thresholds), m.Problem)
	}
}

// revoke deletes a service account: its tokens count no more where they were not asked about just before.
func revoke(t *testing.T, s *e2e.Server, name string) {
	t.Helper()
	if err := direct(t, s).CoreV1().ServiceAccounts("leasecast-test").Delete(t.Context(), name,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestBrokenRotationKeepsTheLastGood(t *testing.T) {
	h := startHub(t, "broken", true)
	server := servers(t).Member("east")
	east := register(t, server, "broken", "100")
	h.awaitMember(t, east, "east is healthy", retryPause, healthy)
	good, own := proxied(t, server), ownUser(t.Name())
	awaitUser(t, h, east, own)
	revoked := account(t, server, "revoked", enough)
	revoke(t, server, "revoked")

	const program = "{apiVersion: client.authentication.k8s.io/v1, command: sh, interactiveMode: Never}"
	runs := strings.Replace(string(good), "user:", "user:\n    exec: "+program, 1)
	for _, tc := range []struct {
		name       string
		kubeconfig []byte
		want       reason.Reason
	}{
		{"it is none", []byte("no kubeconfig"), reason.InvalidKubeconfig},
		{"it runs a program", []byte(runs), reason.InvalidKubeconfig},
		{"it is empty", nil, reason.NoKubeconfig},
		{"it leads to a dead address", replaced(good, server.Proxy().Addr(), "127.0.0.1:1"), reason.Unreachable},
		{"its user is revoked", revoked, reason.Forbidden},
		{"it leads to another member", proxied(t, servers(t).Member("west")), reason.WrongCluster},
	} {
		t.Run(tc.name, func(t *testing.T) {
			setKubeconfig(t, east, tc.kubeconfig)
			took := h.awaitMember(t, east, "the reason is shown", rotationBound, hasProblem(tc.want))
			m, _ := h.Member(east)
			t.Logf("after %v: %s", took, m.Problem.Message)
			if user := whoami(t, m); user != own || !healthy(m) {
				t.Errorf("the last good one is not in use: the hub is %s, health %+v", user, m.Health(thresholds))
			}
			setKubeconfig(t, east, good)
			h.awaitMember(t, east, "the reason is gone", rotationBound+3*time.Second, func(m fleet.Member) bool {
				return m.Problem.Reason == "" && healthy(m)
			})
			awaitUser(t, h, east, own)
		})
	}
	t.Run("the Secret is deleted", func(t *testing.T) {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "broken", Name: "east-kubeconfig"}}
		musttest.Do(t, h.client.Delete(t.Context(), secret))
		h.awaitMember(t, east, "the reason is shown", rotationBound, hasProblem(reason.NoKubeconfig))
		if m, _ := h.Member(east); !healthy(m) {
			t.Errorf("the last good one is not in use: %+v", m.Health(thresholds))
		}
	})
	if begun, ended := h.engaged.count(east); begun != 1 || ended != 0 {
		t.Errorf("engaged %d times, ended %d times", begun, ended)
	}
}

func replaced(kubeconfig []byte, from, to string) []byte {
	return []byte(strings.ReplaceAll(string(kubeconfig), from, to))
}

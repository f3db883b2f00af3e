package fleet_test

import (
	"context"
	"encoding/json"
	"errors"
	"path"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	e2e "github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/rights"
)

// ownRights are those of the hub of a test in each member, and ownUser is the user that it impersonates there.
func ownRights(test string) rights.Rights { return rights.Of("hub-of-" + test) }
func ownUser(test string) string          { return ownRights(test).User() }

// hasRights reports whether the role of the hub of a test is in a member.
func hasRights(t *testing.T, s *e2e.Server, test string) bool {
	t.Helper()
	_, err := direct(t, s).RbacV1().ClusterRoles().Get(t.Context(), ownRights(test).Name(), metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}

func installRights(t *testing.T, s *e2e.Server) {
	t.Helper()
	musttest.Do(t, ownRights(t.Name()).Install(t.Context(), direct(t, s)))
}

// describeRequest returns the verb and the end of the path, without what differs from hub to hub.
func describeRequest(r e2e.Request, test string) string {
	uri, _, _ := strings.Cut(r.URI, "?")
	name := strings.ReplaceAll(path.Base(uri), ownRights(test).Name(), "rights")
	return r.Verb + " " + path.Base(path.Dir(uri)) + "/" + name
}

// requestsOf returns the requests of a test's hub since a time: those as its own user, and those as the administrator.
func requestsOf(t *testing.T, s *e2e.Server, began time.Time) (own, bare []string) {
	t.Helper()
	requests := musttest.Get(s.Requests())(t)
	for _, r := range requests {
		switch {
		case r.Received.Before(began) || !strings.HasPrefix(r.Agent, "leasecast-hub"):
		case r.User == ownUser(t.Name()):
			own = append(own, describeRequest(r, t.Name()))
		case r.User == administrator:
			bare = append(bare, describeRequest(r, t.Name()))
		}
	}
	return own, bare
}

// The audit log of the member shows which user sent each request.
func TestOnlyTheseRequestsAreSentAsAdministrator(t *testing.T) {
	server, began := servers(t).Member("east"), time.Now()
	removeProbe(t, server)
	h := startHub(t, "audited", true)
	k := register(t, server, "audited", "100")
	h.awaitMember(t, k, "east is healthy", retryPause, healthy)
	awaitCached(t, h, k, server)
	edit(t, k, func(c *clusterv1.Cluster) { delete(c.Labels, v1alpha1.PriorityLabel) })
	h.awaitMember(t, k, "it takes no part", retryPause, func(m fleet.Member) bool {
		return m.PriorityReason == reason.NoPriority
	})
	h.Forget(k)
	h.awaitForgotten(t, k)
	own, bare := requestsOf(t, server, began)
	allowed := map[string]bool{
		"get namespaces/kube-system":                 true, // which cluster is this
		"create v1/selfsubjectaccessreviews":         true, // is this an administrator
		"patch clusterroles/rights":                  true, // install
		"patch clusterrolebindings/rights":           true,
		"patch clusterrolebindings/rights-fencing":   true,
		"patch clusterrolebindings/rights-follow":    true,
		"patch clusterrolebindings/rights-requires":  true,
		"patch flowschemas/rights":                   true,
		"delete flowschemas/rights":                  true, // remove
		"delete clusterrolebindings/rights":          true,
		"delete clusterrolebindings/rights-fencing":  true,
		"delete clusterrolebindings/rights-follow":   true,
		"delete clusterrolebindings/rights-requires": true,
		"delete clusterroles/rights":                 true,
	}
	seen := map[string]bool{}
	for _, request := range bare {
		if seen[request] = true; !allowed[request] {
			t.Errorf("sent as administrator: %s", request)
		}
	}
	for request := range allowed {
		if !seen[request] {
			t.Errorf("not sent as administrator: %s", request)
		}
	}
	all := " " + strings.Join(own, " ")
	for _, want := range []string{"watch v1/namespaces", "watch v1/leases", "/leasecast-hub-probe"} {
		if !strings.Contains(all, want) {
			t.Errorf("not sent as the hub's user: %s", want)
		}
	}
}

// Terms must not end while a new process installs what is there already.
func TestRightsOfAnEarlierProcessAreUsedAtOnceAndRepairedLater(t *testing.T) {
	server, k := servers(t).Member("east"), fleet.Key{Fleet: "left", Name: "east"}
	installRights(t, server)
	schemas := direct(t, server).FlowcontrolV1().FlowSchemas()
	musttest.Do(t, schemas.Delete(t.Context(), ownRights(t.Name()).Name(), metav1.DeleteOptions{}))
	began := time.Now()
	h := startHub(t, "left", true)
	register(t, server, "left", "100")
	h.awaitMember(t, k, "east is healthy", retryPause, healthy)
	await(t, "the priority is repaired", retryPause, func() error {
		_, err := schemas.Get(t.Context(), ownRights(t.Name()).Name(), metav1.GetOptions{})
		return err
	})
	requests := musttest.Get(server.Requests())(t)
	watches := false
	for _, r := range requests { // in their order
		switch {
		case r.Received.Before(began), r.User == "system:apiserver": // it keeps the status of priorities by itself
		case r.User == ownUser(t.Name()) && r.Verb == "watch":
			watches = true
		case r.Verb == "patch" && strings.Contains(r.URI, ownRights(t.Name()).Name()) && !watches:
			t.Errorf("repaired before it is used: %s", r)
		}
	}
}

func TestStandbyWaitsForTheRightsAndInstallsNone(t *testing.T) {
	server, k := servers(t).Member("east"), fleet.Key{Fleet: "own", Name: "east"}
	h := startHub(t, "own", false)
	register(t, server, "own", "100")
	h.awaitMember(t, k, "the member is identified", retryPause, func(m fleet.Member) bool { return m.UID != "" })
	never(t, time.Second, func() bool {
		m, _ := h.Member(k)
		return m.Connected || hasRights(t, server, t.Name())
	})
	installRights(t, server) // as the elected replica does
	h.awaitMember(t, k, "the standby is warm", retryPause, func(m fleet.Member) bool { return m.Connected })
	musttest.Do(t, ownRights(t.Name()).Remove(t.Context(), direct(t, server)))
	h.mayWrite.Store(true)
	await(t, "the elected replica installs the rights again", retryPause, func() error {
		return must.ErrorIf(!hasRights(t, server, t.Name()), "they are missing")
	})
	h.awaitMember(t, k, "east is healthy", retryPause, healthy)
	awaitUser(t, h, k, ownUser(t.Name()))
}

// editRole changes the rules of the hub's role.
func editRole(t *testing.T, s *e2e.Server, edit func([]rbacv1.PolicyRule) []rbacv1.PolicyRule) error {
	t.Helper()
	roles := direct(t, s).RbacV1().ClusterRoles()
	role, err := roles.Get(t.Context(), ownRights(t.Name()).Name(), metav1.GetOptions{})
	if err == nil {
		role.Rules = edit(role.Rules)
		_, err = roles.Update(t.Context(), role, metav1.UpdateOptions{})
	}
	return err
}

// rightsIn is the role and the binding as they are stored.
func rightsIn(t *testing.T, s *e2e.Server) (string, error) {
	t.Helper()
	admin, name, get := direct(t, s).RbacV1(), ownRights(t.Name()).Name(), metav1.GetOptions{}
	role, missingRole := admin.ClusterRoles().Get(t.Context(), name, get)
	binding, missingBinding := admin.ClusterRoleBindings().Get(t.Context(), name, get)
	text, err := json.Marshal([]any{role.Rules, binding.Subjects})
	return string(text), errors.Join(missingRole, missingBinding, err)
}

// The kubeconfig repairs what is lost, without a new cluster, before the member counts as unhealthy.
func TestRightsThatAreLostAreInstalledAgain(t *testing.T) {
	server := servers(t).Member("east")
	h := startHub(t, "lost", true)
	k := register(t, server, "lost", "100")
	h.awaitMember(t, k, "east is healthy", retryPause, healthy)
	was := musttest.Get(rightsIn(t, server))(t)
	admin, name, o := direct(t, server).RbacV1(), ownRights(t.Name()).Name(), metav1.DeleteOptions{}
	without := func(resource string) error {
		return editRole(t, server, func(rules []rbacv1.PolicyRule) (kept []rbacv1.PolicyRule) {
			for _, r := range rules {
				if len(r.Resources) != 1 || r.Resources[0] != resource {
					kept = append(kept, r)
				}
			}
			return kept
		})
	}
	patient := health.Thresholds{UnreachableAfter: 8 * time.Second, RecoverAfter: time.Second}
	for what, lose := range map[string]func() error{
		"the role is deleted":       func() error { return admin.ClusterRoles().Delete(t.Context(), name, o) },
		"the binding is deleted":    func() error { return admin.ClusterRoleBindings().Delete(t.Context(), name, o) },
		"the role loses Leases":     func() error { return without("leases") },
		"the role loses Namespaces": func() error { return without("namespaces") },
	} {
		musttest.Do(t, lose())
		await(t, what+", and is back", retryPause, func() error {
			m, _ := h.Member(k)
			v := m.Health(patient)
			if v.State == health.Unhealthy {
				t.Fatalf("%s: the member is unhealthy: %+v", what, v)
			}
			is := must.Get(rightsIn(t, server))
			must.FailIf(is != was, "it is %s, and was %s", is, was)
			// The next loss comes when this one is over.
			return must.ErrorIf(!v.Answering, "the hub is still refused")
		})
	}
	if begun, ended := h.engaged.count(k); begun != 1 || ended != 0 {
		t.Errorf("engaged %d times, ended %d times", begun, ended)
	}
}

// refuseRoles has a member refuse to store the role of the hub until the test is over.
func refuseRoles(t *testing.T, s *e2e.Server) {
	t.Helper()
	const name = "refuses.example.com"
	admin := direct(t, s).AdmissionregistrationV1()
	rule := admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create},
		Rule: admissionv1.Rule{
			APIGroups: []string{rbacv1.GroupName}, APIVersions: []string{"v1"}, Resources: []string{"clusterroles"},
		},
	}
	_, err := admin.ValidatingAdmissionPolicies().Create(t.Context(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: rule}},
			},
			Validations: []admissionv1.Validation{{Expression: "false", Message: "no roles here"}},
		},
	}, metav1.CreateOptions{})
	if err == nil {
		_, err = admin.ValidatingAdmissionPolicyBindings().Create(t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	probe := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}}
	refusal := func(ctx context.Context) error {
		o := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
		_, err := direct(t, s).RbacV1().ClusterRoles().Create(ctx, probe, o)
		return err
	}
	t.Cleanup(func() {
		ctx, o := context.Background(), metav1.DeleteOptions{}
		if err := errors.Join(admin.ValidatingAdmissionPolicyBindings().Delete(ctx, name, o),
			admin.ValidatingAdmissionPolicies().Delete(ctx, name, o)); err != nil {
			t.Error(err)
		}
		await(t, "roles are stored again", retryPause, func() error { return refusal(ctx) })
	})
	await(t, "roles are refused", retryPause, func() error {
		err := refusal(t.Context())
		return must.ErrorIf(err == nil || !strings.Contains(err.Error(), "no roles here"), "the answer is %v", err)
	})
}

func TestRefusedAdministratorIsForbiddenAndNeverUsedBare(t *testing.T) {
	server, began := servers(t).Member("west"), time.Now()
	prepared := account(t, server, "prepared", enough)
	removeProbe(t, server)
	refuseRoles(t, server)
	h := startHub(t, "refusing", true)
	k := register(t, server, "refusing", "100")
	h.awaitMember(t, k, "the reason is shown", retryPause, func(m fleet.Member) bool {
		words := m.Problem.Message
		return m.Problem.Reason == reason.Forbidden && strings.Contains(words, "no roles here") &&
			strings.Contains(words, "config/member")
	})
	never(t, time.Second, func() bool {
		m, _ := h.Member(k)
		return m.Connected || probeOf(t, server)
	})
	_, bare := requestsOf(t, server, began)
	for _, request := range bare {
		switch request {
		case "get namespaces/kube-system", "create v1/selfsubjectaccessreviews", "patch clusterroles/rights":
		default:
			t.Errorf("sent as administrator: %s", request)
		}
	}
	setKubeconfig(t, k, prepared)
	h.awaitMember(t, k, "a prepared kubeconfig is the way out", retryPause, healthy)
	awaitUser(t, h, k, "system:serviceaccount:leasecast-test:prepared")
}

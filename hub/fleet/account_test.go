package fleet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/leasecast/leasecast/api/reason"
	e2e "github.com/leasecast/leasecast/e2e/fleet"
	hubaccount "github.com/leasecast/leasecast/hub/account"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/health"
)

// ownAccount is the name of the account that the hub of a test has in each member, and ownUser is who that is there.
func ownAccount(test string) string { return string(hubaccount.Of("hub-of-" + test)) }
func ownUser(test string) string    { return "system:serviceaccount:kube-system:" + ownAccount(test) }

// hasAccount reports whether the account of a test is in a member.
func hasAccount(t *testing.T, s *e2e.Server, test string) bool {
	t.Helper()
	_, err := direct(t, s).CoreV1().ServiceAccounts(hubaccount.Namespace).Get(t.Context(), ownAccount(test), metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}

// awaitOwn waits until a hub works by its own account in a member.
func awaitOwn(t *testing.T, h *hub, k fleet.Key) {
	t.Helper()
	await(t, "the hub works by its own account", retryPause, func() string {
		m, _ := h.Member(k)
		if user := whoami(t, m); user != ownUser(t.Name()) {
			return "it acts as " + user
		}
		return ""
	})
}

// Terms end while a new process installs what is there already.
func TestAnAccountThatAnEarlierProcessHasLeftIsUsedAtOnceAndRepairedAfterwards(t *testing.T) {
	server, k := servers(t).Member("east"), fleet.Key{Fleet: "left", Name: "east"}
	admin, own := direct(t, server), hubaccount.Of("hub-of-"+t.Name())
	earlier := startHub(t, "left", true)
	register(t, server, "left", "100")
	earlier.awaitMember(t, k, "east is pinned", retryPause, func(m fleet.Member) bool { return m.Connected && m.Pinned })
	awaitOwn(t, earlier, k)
	earlier.stop()
	schemas := admin.FlowcontrolV1().FlowSchemas()
	if err := schemas.Delete(t.Context(), string(own), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	repaired := func() bool {
		_, err := schemas.Get(t.Context(), string(own), metav1.GetOptions{})
		return err == nil
	}
	began := time.Now()
	h := startHub(t, "left", true)
	h.awaitMember(t, k, "east is connected", retryPause, func(m fleet.Member) bool { return m.Connected })
	awaitOwn(t, h, k)
	await(t, "the account is repaired", retryPause, func() string {
		if !repaired() {
			return "its priority is missing"
		}
		return ""
	})
	requests, err := server.Requests()
	if err != nil {
		t.Fatal(err)
	}
	used := false
	for _, r := range requests { // in their order
		switch {
		case r.Received.Before(began):
		case r.User == ownUser(t.Name()):
			used = true
		case r.Verb == "patch" && strings.Contains(r.URI, "/"+string(own)) && !used:
			t.Errorf("the account is repaired before it is used: %s", r)
		}
	}
}

func TestAStandbyRequestsTokensAndInstallsNothing(t *testing.T) {
	server, k := servers(t).Member("east"), fleet.Key{Fleet: "own", Name: "east"}
	h := startHub(t, "own", false)
	register(t, server, "own", "100")
	h.awaitMember(t, k, "the standby is warm", retryPause, func(m fleet.Member) bool { return m.Connected })
	m, _ := h.Member(k)
	if user := whoami(t, m); user != administrator || hasAccount(t, server, t.Name()) {
		t.Errorf("it acts as %s, and has installed an account: %v", user, hasAccount(t, server, t.Name()))
	}
	admin, own := direct(t, server), hubaccount.Of("hub-of-"+t.Name())
	if err := own.Install(t.Context(), admin); err != nil { // as the elected replica does
		t.Fatal(err)
	}
	awaitOwn(t, h, k)
	awaitCached(t, h, k, server)
	if err := own.Remove(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	h.mayWrite.Store(true)
	await(t, "the elected replica installs the account anew", retryPause, func() string {
		if !hasAccount(t, server, t.Name()) {
			return "it is not there"
		}
		return ""
	})
	awaitOwn(t, h, k)
}

// The member's own audit log tells who asked for what.
func TestAnAdministratorsKubeconfigInstallsTheAccountAndDoesNothingElse(t *testing.T) {
	server, began := servers(t).Member("east"), time.Now()
	removeProbe(t, server)
	h := startHub(t, "audited", true)
	k := register(t, server, "audited", "100")
	h.awaitMember(t, k, "east is healthy", retryPause, healthy)
	awaitCached(t, h, k, server)
	requests, err := server.Requests()
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]bool{}
	for _, r := range requests {
		switch {
		case r.Received.Before(began) || !strings.HasPrefix(r.Agent, "leasecast-hub"):
		case r.User == ownUser(t.Name()):
			uri, _, _ := strings.Cut(r.URI, "?")
			own[r.Verb+" "+path.Base(uri)] = true
		case r.User != administrator:
			t.Errorf("somebody else asks: %s", r)
		case strings.Contains(r.URI, "/"+ownAccount(t.Name())), strings.HasSuffix(r.URI, "/selfsubjectaccessreviews"):
		case r.Verb == "get" && strings.HasSuffix(r.URI, "/namespaces/kube-system"): // which cluster is this
		default:
			t.Errorf("the administrator asks: %s", r)
		}
	}
	probed := own["create leases"] || own["update leasecast-hub-probe"] // the Lease may be there
	if !own["watch namespaces"] || !own["watch leases"] || !probed {
		t.Errorf("the account asked %v, want watches of namespaces and Leases, and a write of the probe Lease", own)
	}
}

// accountOf is what belongs to the account of a test in a member, and an error if something is missing.
func accountOf(t *testing.T, s *e2e.Server) (parts []string, err error) {
	t.Helper()
	admin, own, get := direct(t, s), ownAccount(t.Name()), metav1.GetOptions{}
	_, missing := admin.CoreV1().ServiceAccounts(hubaccount.Namespace).Get(t.Context(), own, get)
	err = errors.Join(err, missing)
	role, missing := admin.RbacV1().ClusterRoles().Get(t.Context(), own, get)
	err = errors.Join(err, missing)
	for _, name := range []string{own, own + "-fencing"} {
		binding, missing := admin.RbacV1().ClusterRoleBindings().Get(t.Context(), name, get)
		err = errors.Join(err, missing)
		parts = append(parts, encoded(t, binding.Subjects))
	}
	schema, missing := admin.FlowcontrolV1().FlowSchemas().Get(t.Context(), own, get)
	return append(parts, encoded(t, role.Rules), encoded(t, schema.Spec)), errors.Join(err, missing)
}

func encoded(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// differs is how the account of a test is not as it was, empty if it is.
func differs(t *testing.T, s *e2e.Server, was []string) string {
	t.Helper()
	switch is, err := accountOf(t, s); {
	case err != nil:
		return err.Error()
	case !slices.Equal(is, was):
		return fmt.Sprintf("it is %v, and was %v", is, was)
	}
	return ""
}

// editRole changes the rules of the account of a test.
func editRole(t *testing.T, s *e2e.Server, edit func([]rbacv1.PolicyRule) []rbacv1.PolicyRule) error {
	t.Helper()
	roles := direct(t, s).RbacV1().ClusterRoles()
	role, err := roles.Get(t.Context(), ownAccount(t.Name()), metav1.GetOptions{})
	if err == nil {
		role.Rules = edit(role.Rules)
		_, err = roles.Update(t.Context(), role, metav1.UpdateOptions{})
	}
	return err
}

// without are rules without a verb on Leases.
func without(verb string) func([]rbacv1.PolicyRule) []rbacv1.PolicyRule {
	return func(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
		for i := range rules {
			if slices.Contains(rules[i].Resources, "leases") {
				rules[i].Verbs = slices.DeleteFunc(rules[i].Verbs, func(v string) bool { return v == verb })
			}
		}
		return rules
	}
}

// usesAccount starts a hub that works in a member by its own account, and returns what belongs to that.
func usesAccount(t *testing.T, s *e2e.Server, namespace string) (h *hub, k fleet.Key, was []string) {
	t.Helper()
	h = startHub(t, namespace, true)
	k = register(t, s, namespace, "100")
	h.awaitMember(t, k, "east is healthy", retryPause, healthy)
	awaitUser(t, h, k, ownUser(t.Name()))
	was, err := accountOf(t, s)
	if err != nil {
		t.Fatal(err)
	}
	return h, k, was
}

// What is lost is put right by the kubeconfig, without a new cluster, before anybody calls the member unhealthy.
func TestAnAccountThatIsLostIsInstalledAnew(t *testing.T) {
	server := servers(t).Member("east")
	h, k, was := usesAccount(t, server, "lost")
	admin, own := direct(t, server), ownAccount(t.Name())
	for _, tc := range []struct {
		name string
		lose func() error
	}{
		{"somebody deletes the ServiceAccount", func() error {
			return admin.CoreV1().ServiceAccounts(hubaccount.Namespace).Delete(t.Context(), own, metav1.DeleteOptions{})
		}},
		{"somebody deletes the binding", func() error {
			return admin.RbacV1().ClusterRoleBindings().Delete(t.Context(), own, metav1.DeleteOptions{})
		}},
		{"somebody takes the right to update Leases", func() error { return editRole(t, server, without("update")) }},
	} {
		t.Run(tc.name, func(sub *testing.T) {
			if err := tc.lose(); err != nil {
				sub.Fatal(err)
			}
			await(sub, "all of the account is there, and used", retryPause, func() string {
				m, _ := h.Member(k)
				if m.Health(thresholds).State == health.Unhealthy {
					sub.Fatalf("the member is unhealthy: %+v", m.Health(thresholds))
				}
				if missing := differs(t, server, was); missing != "" {
					return missing
				}
				if user := whoami(sub, m); !strings.HasSuffix(user, own) {
					return "the hub acts as " + user
				}
				return ""
			})
		})
	}
	if begun, ended := h.engaged.count(k); begun != 1 || ended != 0 {
		t.Errorf("engaged %d times, ended %d times", begun, ended)
	}
}

// Rights that are too many, and what nothing asks for now, show in no answer.
func TestWhatNoAnswerShowsOfTheAccountIsPutRightWithTheNextToken(t *testing.T) {
	server := servers(t).Member("east")
	h, k, was := usesAccount(t, server, "renewed")
	admin, own := direct(t, server), ownAccount(t.Name())
	err := editRole(t, server, func(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
		return append(rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}})
	})
	gone := metav1.DeleteOptions{}
	if err = errors.Join(err, admin.FlowcontrolV1().FlowSchemas().Delete(t.Context(), own, gone),
		admin.RbacV1().ClusterRoleBindings().Delete(t.Context(), own+"-fencing", gone)); err != nil {
		t.Fatal(err)
	}
	h.clock.ahead.Add(int64(46 * time.Minute))
	edit(t, k, func(c *clusterv1.Cluster) { c.Labels["example.com/look"] = "again" }) // or else it would sleep until then
	await(t, "the account is as it was", retryPause, func() string { return differs(t, server, was) })
	if begun, ended := h.engaged.count(k); begun != 1 || ended != 0 {
		t.Errorf("engaged %d times, ended %d times", begun, ended)
	}
}

// refuse has a member refuse something with a message, until what it returns is called.
func refuse(t *testing.T, s *e2e.Server, message string, what admissionv1.RuleWithOperations, names ...string) (allow func() error) {
	t.Helper()
	const name = "refuses.example.com"
	admin := direct(t, s)
	policies, bindings := admin.AdmissionregistrationV1().ValidatingAdmissionPolicies(), admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	_, err := policies.Create(t.Context(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{ResourceNames: names, RuleWithOperations: what}}},
			Validations:      []admissionv1.Validation{{Expression: "false", Message: message}},
		},
	}, metav1.CreateOptions{})
	if err == nil {
		_, err = bindings.Create(t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	allow = sync.OnceValue(func() error {
		o := metav1.DeleteOptions{}
		return errors.Join(bindings.Delete(context.Background(), name, o), policies.Delete(context.Background(), name, o))
	})
	t.Cleanup(func() {
		if err := allow(); err != nil {
			t.Error(err)
		}
	})
	return allow
}

// refuseTokens has a member refuse all tokens until the test is over.
func refuseTokens(t *testing.T, s *e2e.Server) {
	t.Helper()
	admin := direct(t, s)
	asks := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: hubaccount.Namespace, Name: "asks"}}
	if _, err := admin.CoreV1().ServiceAccounts(asks.Namespace).Create(t.Context(), asks, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	allow := refuse(t, s, "no tokens here", admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create},
		Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"serviceaccounts/token"}},
	})
	t.Cleanup(func() {
		if err := allow(); err != nil {
			t.Error(err)
		}
		await(t, "tokens are granted again", retryPause, func() string {
			return refusal(context.Background(), admin)
		})
	})
	await(t, "tokens are refused", retryPause, func() string {
		if !strings.Contains(refusal(t.Context(), admin), "no tokens here") {
			return "they are granted"
		}
		return ""
	})
}

// refusal is what a member answers to a request for a token, empty if it grants one.
func refusal(ctx context.Context, admin kubernetes.Interface) string {
	if _, err := admin.CoreV1().ServiceAccounts(hubaccount.Namespace).CreateToken(ctx, "asks", &authenticationv1.TokenRequest{}, metav1.CreateOptions{}); err != nil {
		return err.Error()
	}
	return ""
}

func TestAMemberThatRefusesTokensIsNotUsedAsAdministrator(t *testing.T) {
	server := servers(t).Member("west")
	prepared := account(t, server, "prepared", enough)
	refuseTokens(t, server)
	h := startHub(t, "refusing", true)
	k := register(t, server, "refusing", "100")
	h.awaitMember(t, k, "the reason is shown", retryPause, func(m fleet.Member) bool {
		return m.Problem.Reason == reason.Forbidden && strings.Contains(m.Problem.Message, "no tokens here") && strings.Contains(m.Problem.Message, "config/member")
	})
	never(t, time.Second, func() bool {
		m, _ := h.Member(k)
		return m.Connected || probeOf(t, server)
	})
	setKubeconfig(t, k, prepared)
	h.awaitMember(t, k, "a prepared kubeconfig is the way out", retryPause, healthy)
}

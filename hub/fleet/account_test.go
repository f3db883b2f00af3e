package fleet_test

import (
	"context"
	"errors"
	"path"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

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
	if user := whoami(t, m); user != adminName(t, server) || hasAccount(t, server, t.Name()) {
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
		case r.User != adminName(t, server):
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

// What is lost is put right by the kubeconfig, without a new cluster, before anybody calls the member unhealthy.
func TestAnAccountThatIsLostIsInstalledAnew(t *testing.T) {
	server := servers(t).Member("east")
	h := startHub(t, "lost", true)
	k := register(t, server, "lost", "100")
	h.awaitMember(t, k, "east is healthy", retryPause, healthy)
	awaitUser(t, h, k, ownUser(t.Name()))
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
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := tc.lose(); err != nil {
				t.Fatal(err)
			}
			await(t, "all of the account is there, and used", retryPause, func() string {
				_, err := admin.CoreV1().ServiceAccounts(hubaccount.Namespace).Get(t.Context(), own, metav1.GetOptions{})
				if err == nil {
					_, err = admin.RbacV1().ClusterRoleBindings().Get(t.Context(), own, metav1.GetOptions{})
				}
				m, _ := h.Member(k)
				switch {
				case m.Health(thresholds).State == health.Unhealthy:
					t.Fatalf("the member is unhealthy: %+v", m.Health(thresholds))
				case err != nil:
					return err.Error()
				case !strings.HasSuffix(whoami(t, m), own):
					return "the hub acts as " + whoami(t, m)
				}
				return ""
			})
		})
	}
	if begun, ended := h.engaged.count(k); begun != 1 || ended != 0 {
		t.Errorf("engaged %d times, ended %d times", begun, ended)
	}
}

// refuseTokens has a member refuse all tokens until the test is over.
func refuseTokens(t *testing.T, s *e2e.Server) {
	t.Helper()
	admin := direct(t, s)
	const name = "no-tokens.example.com"
	policies, bindings := admin.AdmissionregistrationV1().ValidatingAdmissionPolicies(), admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	asks := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: hubaccount.Namespace, Name: "asks"}}
	if _, err := admin.CoreV1().ServiceAccounts(asks.Namespace).Create(t.Context(), asks, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := policies.Create(t.Context(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"serviceaccounts/token"}},
			}}}},
			Validations: []admissionv1.Validation{{Expression: "false", Message: "no tokens here"}},
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
	t.Cleanup(func() {
		o := metav1.DeleteOptions{}
		if err := errors.Join(bindings.Delete(context.Background(), name, o), policies.Delete(context.Background(), name, o)); err != nil {
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

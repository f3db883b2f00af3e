package config_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/seal"
)

const (
	hubNamespace = "leasecast-system"
	hubAccount   = "leasecast-hub"
	hubUser      = "system:serviceaccount:" + hubNamespace + ":" + hubAccount
)

func TestKubectlAppliesEverythingWithoutAWarning(t *testing.T) {
	for _, s := range []*server{management, member} {
		if strings.Contains(s.output, "Warning") {
			t.Errorf("%s:\n%s", s.Name(), s.output)
		}
	}
	out := musttest.Get(management.kubectl(t.Context(), "apply", "-k", "samples"))(t)
	if strings.Contains(out, "Warning") {
		t.Errorf("config/samples:\n%s", out)
	}
}

func TestWhatKubectlGetPrints(t *testing.T) {
	c, since := typed(t, management.config), metav1.NewMicroTime(time.Now().Add(-90*time.Minute))
	meta := metav1.ObjectMeta{Namespace: "default", Name: "printed"}
	record := &v1alpha1.NamespaceLeader{ObjectMeta: meta, Spec: v1alpha1.NamespaceLeaderSpec{
		Leader: "east", State: v1alpha1.StateLeading, Epoch: 7, Reason: reason.Elected, Next: "west", Since: &since,
		LeaseDurationSeconds: 15, LeaseName: v1alpha1.DefaultLeaseName,
	}}
	policy := &v1alpha1.LeadershipPolicy{ObjectMeta: meta, Spec: v1alpha1.LeadershipPolicySpec{
		Namespaces: v1alpha1.NamespaceSelection{Names: []string{"team-a"}},
	}}
	musttest.Do(t, errors.Join(c.Create(t.Context(), record), c.Create(t.Context(), policy)))
	t.Cleanup(func() { _, _ = c.Delete(context.Background(), record), c.Delete(context.Background(), policy) })
	policy.Status = v1alpha1.LeadershipPolicyStatus{
		Namespaces: ptr.To[int32](3),
		Clusters:   ptr.To[int32](2),
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Ready", LastTransitionTime: metav1.Now(),
		}},
	}
	musttest.Do(t, c.Status().Update(t.Context(), policy))
	for short, want := range map[string]string{
		"nsleader": "printed east Leading 7 Elected west 90m", "lspol": "printed True Ready 3 2 ",
	} {
		out, err := management.kubectl(t.Context(), "get", short, "printed", "--no-headers")
		if got := strings.Join(strings.Fields(out), " "); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("kubectl get %s prints %q, want %q", short, got, want)
		}
	}
}

// access is one question to RBAC.
type access struct {
	verbs, namespace, group, resource, name string
	may                                     bool
}

const yes, no = true, false

func ask(t *testing.T, s *server, user string, questions map[string]access) {
	t.Helper()
	for name, q := range questions {
		for verb := range strings.FieldsSeq(q.verbs) {
			if got := s.may(t, user, verb, q.namespace, q.group, q.resource, q.name); got != q.may {
				t.Errorf("%s: %s %s in %q: %v, want %v", name, verb, q.resource, q.namespace, got, q.may)
			}
		}
	}
}

const everyVerb = "get list watch create update patch delete deletecollection"

// A hub that runs with these rights shows that they suffice: e2e/install TestTheHubIsInstalledUsedAndRemoved.
func TestTheHubHasNoOtherRightsInTheManagementCluster(t *testing.T) {
	const capi, rbac = "cluster.x-k8s.io", "rbac.authorization.k8s.io"
	ask(t, management, hubUser, map[string]access{
		"pins no Clusters of other fleets": {"patch", "kube-public", capi, "clusters", "", no},
		"does not make or end Clusters":    {"create update delete deletecollection", "default", capi, "clusters", "", no},
		"does not write policies": {"create update patch delete", "default", "leasecast.dev", "leadershippolicies",
			"", no},
		"does not change kubeconfigs": {"update patch delete", "default", "", "secrets", "east-kubeconfig", no},
		"does not delete its seal":    {"delete deletecollection", "default", "", "secrets", seal.SecretName, no},
		"no Secret of all namespaces": {everyVerb, "", "", "secrets", "", no},
		"no Secret of its namespace":  {everyVerb, hubNamespace, "", "secrets", "", no},
		"no Lease but of its election": {"get update patch delete", hubNamespace, "coordination.k8s.io", "leases",
			"other", no},
		"no rights to give":     {everyVerb + " bind escalate", "", rbac, "clusterroles", "", no},
		"no programs to run":    {everyVerb, hubNamespace, "", "pods", "", no},
		"nobody to impersonate": {"impersonate", "", "", "users", "", no},
	})
}

// config/all-namespaces gives the rights of a fleet everywhere, and no others.
func TestTheHubMayUseTheSecretsOfAllNamespacesIfThatIsGranted(t *testing.T) {
	out, err := management.kubectl(t.Context(), "apply", "-k", "all-namespaces")
	if err != nil || strings.Contains(out, "Warning") {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() {
		if _, err := management.kubectl(context.Background(), "delete", "-k", "all-namespaces"); err != nil {
			t.Error(err)
		}
	})
	ask(t, management, hubUser, map[string]access{
		"follows kubeconfigs":         {"list watch", "", "", "secrets", "", yes},
		"pins Clusters anywhere":      {"patch", "kube-public", "cluster.x-k8s.io", "clusters", "", yes},
		"keeps seals":                 {"get create update", "kube-public", "", "secrets", seal.SecretName, yes},
		"does not change kubeconfigs": {"update patch delete", "kube-public", "", "secrets", "east-kubeconfig", no},
	})
}

// Whoever creates a Secret of the right type gets the token of a ServiceAccount.
func TestTheHubCreatesTheSecretOfItsSealAndNoOther(t *testing.T) {
	hubClient := kubernetes.NewForConfigOrDie(management.as(t, hubNamespace, hubAccount))
	// An account of another name and namespace, with the hub's rights to this fleet.
	renamedClient := kubernetes.NewForConfigOrDie(management.granted(t, "leadership", "leasecast-hub-fleet"))
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	named := func(name string) corev1.Secret {
		return corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	own, other := named(seal.SecretName), named("east-kubeconfig")
	awaitEnforced(t, func(ctx context.Context) bool {
		_, err := renamedClient.CoreV1().Secrets("default").Create(ctx, &own, dry)
		return err == nil
	})
	token := corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: seal.SecretName, Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"},
		},
		Type: corev1.SecretTypeServiceAccountToken,
	}
	for name, test := range map[string]struct {
		by     kubernetes.Interface
		secret corev1.Secret
		may    bool
	}{
		"the Secret of its seal": {hubClient, own, true},
		"no other":               {hubClient, other, false},
		"none whose name the server chooses": {
			hubClient, corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: seal.SecretName}}, false,
		},
		"no token under the name of the seal":        {hubClient, token, false},
		"the Secret of its seal, by another account": {renamedClient, own, true},
		"no other, by another account":               {renamedClient, other, false},
		"nobody else is kept from anything":          {management.client, other, true},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := test.by.CoreV1().Secrets("default").Create(t.Context(), &test.secret, dry)
			rejected := apierrors.IsForbidden(err) && strings.Contains(err.Error(), "leasecast-hub-secrets")
			if test.may && err != nil || !test.may && !rejected {
				t.Errorf("the API server says: %v", err)
			}
		})
	}
}

func TestTheHubMayDoItsWorkInAMemberAndNoMore(t *testing.T) {
	const coordination, admission = "coordination.k8s.io", "admissionregistration.k8s.io"
	const rbac = "rbac.authorization.k8s.io"
	const policies, bindings = "validatingadmissionpolicies", "validatingadmissionpolicybindings"
	ask(t, member, hubUser, map[string]access{
		"writes Leases":                {"get list watch create update delete", "", coordination, "leases", "", yes},
		"one at a time":                {"patch deletecollection", "", coordination, "leases", "", no},
		"follows namespaces":           {"get list watch", "", "", "namespaces", "", yes},
		"does not change them":         {"create update patch delete", "", "", "namespaces", "", no},
		"keeps its policy":             {"get create update delete", "", admission, policies, guard.Name, yes},
		"keeps its binding":            {"get create update delete", "", admission, bindings, guard.Name, yes},
		"keeps that for registrations": {"get create update delete", "", admission, policies, guard.RegistrationsName, yes},
		"keeps the binding of that":    {"get create update delete", "", admission, bindings, guard.RegistrationsName, yes},
		"follows no policies":          {"list watch patch deletecollection", "", admission, policies, guard.Name, no},
		"follows no bindings":          {"list watch patch deletecollection", "", admission, bindings, guard.Name, no},
		"leaves others' policies":      {"get list watch update patch delete", "", admission, policies, "other", no},
		"leaves others' bindings":      {"get list watch update patch delete", "", admission, bindings, "other", no},
		"no webhooks":                  {everyVerb, "", admission, "validatingwebhookconfigurations", "", no},
		"no Secrets":                   {everyVerb, "", "", "secrets", "", no},
		"no programs to run":           {everyVerb, "", "", "pods", "", no},
		"no rights to give":            {everyVerb + " bind escalate", "", rbac, "clusterroles", "", no},
		"nobody to impersonate":        {"impersonate", "", "", "users", "", no},
	})
}

// config/reader gives no right but those to Leases. A quick start with these roles shows that they suffice:
// e2e/guestbook.
func TestReadersHaveNoOtherRights(t *testing.T) {
	const writes, leases = "create update patch delete deletecollection", "leases"
	for role, questions := range map[string]map[string]access{
		"leasecast-reader": {
			"does not write":     {writes, "default", "coordination.k8s.io", leases, "", no},
			"reads nothing else": {"get list watch", "default", "", "configmaps", "", no},
		},
		"leasecast-registration": {
			"lists no other":      {"list watch", "default", "coordination.k8s.io", leases, "", no},
			"writes nothing else": {everyVerb, "default", "", "configmaps", "", no},
		},
	} {
		member.granted(t, role, role)
		ask(t, member, "system:serviceaccount:default:"+role, questions)
	}
}

func TestLeasesOfTheHubHaveThePriorityOfElections(t *testing.T) {
	const leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
	levels := member.client.FlowcontrolV1().PriorityLevelConfigurations()
	level := musttest.Get(levels.Get(t.Context(), "leader-election", metav1.GetOptions{}))(t)
	config := member.as(t, hubNamespace, hubAccount)
	client := musttest.Get(rest.HTTPClientFor(config))(t)
	for path, want := range map[string]bool{leases + "/leasecast": true, leases: false} { // a list may wait
		request := musttest.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+path, nil))(t)
		response, err := client.Do(request)
		musttest.Do(t, err)
		_ = response.Body.Close()
		if got := response.Header.Get("X-Kubernetes-Pf-Prioritylevel-Uid"); got == "" || got == string(level.UID) != want {
			t.Errorf("GET %s has the priority level %s, elections have %s", path, got, level.UID)
		}
	}
}

func TestThePodOfTheHubIsAdmittedInARestrictedNamespace(t *testing.T) {
	deployments := management.client.AppsV1().Deployments(hubNamespace)
	deployment := musttest.Get(deployments.Get(t.Context(), hubAccount, metav1.GetOptions{}))(t)
	template := deployment.Spec.Template
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Name = "hub"
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	pods := management.client.CoreV1().Pods(hubNamespace)
	_ = musttest.Get(pods.Create(t.Context(), pod, dryRun))(t)
	pod.Spec.Containers[0].SecurityContext = nil // it is the namespace that is strict
	if _, err := pods.Create(t.Context(), pod, dryRun); !apierrors.IsForbidden(err) {
		t.Errorf("a Pod without a security context: %v, want forbidden", err)
	}
}

func TestAFurtherFleetIsAnOverlay(t *testing.T) {
	here := musttest.Get(os.Getwd())(t)
	dir := musttest.Get(filepath.EvalSymlinks(t.TempDir()))(t)
	fleet := musttest.Get(filepath.Rel(dir, filepath.Join(here, "fleet")))(t)
	overlay := fmt.Sprintf("namespace: another-fleet\nresources: [%s]\n", fleet)
	musttest.Do(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(overlay), 0o600))
	_ = musttest.Get(management.kubectl(t.Context(), "create", "namespace", "another-fleet"))(t)
	if management.may(t, hubUser, "list", "another-fleet", "", "secrets", "") {
		t.Fatal("the hub may read the Secrets of a namespace that it was not given")
	}
	_ = musttest.Get(management.kubectl(t.Context(), "apply", "-k", dir))(t)
	if !management.may(t, hubUser, "list", "another-fleet", "", "secrets", "") {
		t.Fatal("the hub may not read the Secrets of its further fleet")
	}
}

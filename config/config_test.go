package config_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/hub"
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
			t.Errorf("%s:\n%s", s.name, s.output)
		}
	}
	for _, want := range []string{
		"leadershippolicies.leasecast.dev",
		"namespaceleaders.leasecast.dev",
		"deployment.apps/leasecast-hub",
		"role.rbac.authorization.k8s.io/leasecast-hub-fleet",
		"validatingadmissionpolicybinding.admissionregistration.k8s.io/leasecast-records",
	} {
		if !strings.Contains(management.output, want) {
			t.Errorf("config/default lacks %s:\n%s", want, management.output)
		}
	}
	out, err := management.kubectl(t.Context(), "apply", "-k", "samples")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out, "Warning") {
		t.Errorf("config/samples:\n%s", out)
	}
}

// access is one question to RBAC.
type access struct {
	verbs, namespace, group, resource, name string
	may                                     bool
}

const yes, no = true, false

// API groups.
const (
	rbac         = "rbac.authorization.k8s.io"
	admission    = "admissionregistration.k8s.io"
	coordination = "coordination.k8s.io"
)

func ask(t *testing.T, s *server, user string, questions map[string]access) {
	t.Helper()
	for name, q := range questions {
		t.Run(name, func(t *testing.T) {
			resource, subresource, _ := strings.Cut(q.resource, "/")
			for verb := range strings.FieldsSeq(q.verbs) {
				if got := s.may(t, user, verb, q.namespace, q.group, resource, subresource, q.name); got != q.may {
					t.Errorf("%s %s in %q named %q: %v, want %v", verb, q.resource, q.namespace, q.name, got, q.may)
				}
			}
		})
	}
}

const everyVerb = "get list watch create update patch delete deletecollection"

func TestTheHubMayDoItsWorkInTheManagementClusterAndNoMore(t *testing.T) {
	const own, capi, records = "leasecast.dev", "cluster.x-k8s.io", "namespaceleaders"
	ask(t, management, hubUser, map[string]access{
		"follows Clusters in any namespace": {"get list watch", "", capi, "clusters", "", yes},
		"pins those of its fleet":           {"patch", "default", capi, "clusters", "", yes},
		"and no others":                     {"patch", "kube-public", capi, "clusters", "", no},
		"does not make or end Clusters":     {"create update delete deletecollection", "default", capi, "clusters", "", no},
		"follows policies":                  {"get list watch", "default", own, "leadershippolicies", "", yes},
		"does not write policies":           {"create update patch delete", "default", own, "leadershippolicies", "", no},
		"answers in their status":           {"update patch", "default", own, "leadershippolicies/status", "", yes},
		"keeps the records":                 {"get list watch create update patch delete", "default", own, records, "", yes},
		"changes their spec":                {"record", "default", own, records, "", yes},
		"and their status":                  {"get update patch", "default", own, records + "/status", "", yes},
		"tells events":                      {"create patch", "default", "events.k8s.io", "events", "", yes},
		"tells events of the old kind":      {"create patch", "default", "", "events", "", yes},
		"reads no events":                   {"get list watch delete", "default", "", "events", "", no},
		"knows its own cluster":             {"get", "", "", "namespaces", "kube-system", yes},
		"knows no other namespace":          {"get list watch", "", "", "namespaces", "default", no},
		"reads kubeconfigs of its fleet":    {"get list watch", "default", "", "secrets", "east-kubeconfig", yes},
		"does not change them":              {"update patch delete", "default", "", "secrets", "east-kubeconfig", no},
		"keeps the seal of its fleet":       {"get create update patch", "default", "", "secrets", seal.SecretName, yes},
		"does not delete it":                {"delete deletecollection", "default", "", "secrets", seal.SecretName, no},
		"no Secret of another namespace":    {everyVerb, hubNamespace, "", "secrets", "", no},
		"no Secret of all namespaces":       {everyVerb, "", "", "secrets", "", no},
		"no Secret of kube-system":          {everyVerb, "kube-system", "", "secrets", "", no},
		"holds its election":                {"get update", hubNamespace, coordination, "leases", hub.ElectionName, yes},
		"may start it":                      {"create", hubNamespace, coordination, "leases", "", yes},
		"no other Lease":                    {"get update patch delete", hubNamespace, coordination, "leases", "other", no},
		"no Lease elsewhere":                {everyVerb, "default", coordination, "leases", "", no},
		"no admission policies":             {everyVerb, "", admission, "validatingadmissionpolicies", "", no},
		"no rights to give":                 {everyVerb + " bind escalate", "", rbac, "clusterroles", "", no},
		"no programs to run":                {everyVerb, hubNamespace, "", "pods", "", no},
		"nobody to impersonate":             {"impersonate", "", "", "users", "", no},
		"does not change CRDs":              {everyVerb, "", "apiextensions.k8s.io", "customresourcedefinitions", "", no},
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
		"reads kubeconfigs anywhere":       {"get list watch", "kube-public", "", "secrets", "east-kubeconfig", yes},
		"follows them all at once":         {"list watch", "", "", "secrets", "", yes},
		"pins Clusters anywhere":           {"patch", "kube-public", "cluster.x-k8s.io", "clusters", "", yes},
		"keeps seals":                      {"get create update", "kube-public", "", "secrets", seal.SecretName, yes},
		"does not change kubeconfigs":      {"update patch delete", "kube-public", "", "secrets", "east-kubeconfig", no},
		"gives no rights":                  {everyVerb + " bind escalate", "", rbac, "clusterroles", "", no},
		"runs no programs in other places": {everyVerb, "kube-public", "", "pods", "", no},
	})
	secrets := kubernetes.NewForConfigOrDie(management.as(t, hubNamespace, hubAccount)).CoreV1().Secrets("kube-public")
	other := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "east-kubeconfig"}}
	_, err = secrets.Create(t.Context(), other, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "leasecast-hub-secrets") {
		t.Errorf("a Secret that is no seal: %v", err)
	}
}

// Whoever creates a Secret of the right type gets the token of a ServiceAccount.
func TestTheHubCreatesTheSecretOfItsSealAndNoOther(t *testing.T) {
	hubClient, err := kubernetes.NewForConfig(management.as(t, hubNamespace, hubAccount))
	if err != nil {
		t.Fatal(err)
	}
	const renamed = "leadership" // an account of another name and namespace, with the hub's rights to this fleet
	if _, err := management.client.CoreV1().ServiceAccounts("default").Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: renamed}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := management.kubectl(t.Context(), "create", "rolebinding", renamed, "--namespace=default",
		"--clusterrole=leasecast-hub-fleet", "--serviceaccount=default:"+renamed); err != nil {
		t.Fatal(err)
	}
	renamedClient, err := kubernetes.NewForConfig(management.as(t, "default", renamed))
	if err != nil {
		t.Fatal(err)
	}
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	named := func(name string) corev1.Secret {
		return corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	own, other := named(seal.SecretName), named("east-kubeconfig")
	granted := func(ctx context.Context) (bool, error) {
		_, err := renamedClient.CoreV1().Secrets("default").Create(ctx, &own, dry)
		return err == nil, nil
	}
	err = wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true, granted)
	if err != nil {
		t.Fatalf("the grant of the other account does not count: %v", err)
	}
	tokenOf := map[string]string{corev1.ServiceAccountNameKey: "default"}
	generated := metav1.ObjectMeta{GenerateName: seal.SecretName}
	for name, test := range map[string]struct {
		by     kubernetes.Interface
		secret corev1.Secret
		may    bool
	}{
		"the Secret of its seal":             {hubClient, own, true},
		"no other":                           {hubClient, other, false},
		"none whose name the server chooses": {hubClient, corev1.Secret{ObjectMeta: generated}, false},
		"no token": {hubClient, corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "token", Annotations: tokenOf},
			Type:       corev1.SecretTypeServiceAccountToken,
		}, false},
		"no token under the name of the seal": {hubClient, corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: seal.SecretName, Annotations: tokenOf},
			Type:       corev1.SecretTypeServiceAccountToken,
		}, false},
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

func TestAReaderReadsLeasesOnly(t *testing.T) {
	const account = "guestbook"
	if _, err := member.client.CoreV1().ServiceAccounts("default").Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := member.kubectl(t.Context(), "create", "rolebinding", "guestbook", "--namespace=default",
		"--clusterrole=leasecast-reader", "--serviceaccount=default:"+account); err != nil {
		t.Fatal(err)
	}
	ask(t, member, "system:serviceaccount:default:"+account, map[string]access{
		"reads them":         {"get list watch", "default", coordination, "leases", "", yes},
		"not elsewhere":      {"get list watch", "kube-system", coordination, "leases", "", no},
		"does not write":     {"create update patch delete deletecollection", "default", coordination, "leases", "", no},
		"reads nothing else": {"get list watch", "default", "", "configmaps", "", no},
	})
}

func TestAReaderThatRegistersWritesLeasesInItsOwnNamespaceOnly(t *testing.T) {
	const account = "registered"
	if _, err := member.client.CoreV1().ServiceAccounts("default").Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := member.kubectl(t.Context(), "create", "rolebinding", "registered", "--namespace=default",
		"--clusterrole=leasecast-registration", "--serviceaccount=default:"+account); err != nil {
		t.Fatal(err)
	}
	ask(t, member, "system:serviceaccount:default:"+account, map[string]access{
		"keeps its registration":   {"get create update delete", "default", coordination, "leases", "", yes},
		"not elsewhere":            {"get create update delete", "kube-system", coordination, "leases", "", no},
		"sees no other":            {"list watch", "default", coordination, "leases", "", no},
		"nothing that is no Lease": {everyVerb, "default", "", "configmaps", "", no},
	})
}

// The question of a security reviewer: who counts as the hub in this cluster?
func TestKubectlTellsWhoIsTheHub(t *testing.T) {
	tests := map[string]struct {
		in   *server
		as   string
		want string
	}{
		"the hub in a member":                 {member, "--as=" + hubUser, "yes"},
		"the hub in the management cluster":   {management, "--as=" + hubUser, "no"},
		"an administrator":                    {member, "--as-group=system:masters", "yes"},
		"anybody with a token":                {member, "--as-group=system:serviceaccounts", "no"},
		"an account of that name in a tenant": {member, "--as=system:serviceaccount:default:" + hubAccount, "no"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			out, err := test.in.kubectl(t.Context(), "auth", "can-i", guard.Verb, guard.Path, "--as=somebody", test.as)
			if (err == nil) != (test.want == "yes") {
				t.Errorf("exit status: %v", err)
			}
			lines := strings.Split(strings.TrimSpace(out), "\n")
			if got := lines[len(lines)-1]; !strings.HasPrefix(got, test.want) {
				t.Errorf("kubectl says:\n%s\nwant %s", out, test.want)
			}
		})
	}
}

func TestTheRolesThatNamespacesAreHandedOutWithDoNotIncludeTheHubs(t *testing.T) {
	for _, s := range []*server{management, member} {
		roles, err := s.client.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, role := range roles.Items {
			if !strings.HasPrefix(role.Name, "leasecast-") {
				continue
			}
			for label := range role.Labels {
				if strings.HasPrefix(label, "rbac.authorization.k8s.io/aggregate-to-") {
					t.Errorf("%s: ClusterRole %s is aggregated by %s", s.name, role.Name, label)
				}
			}
		}
	}
}

func TestRequestsThatTermsDependOnShareThePriorityOfElections(t *testing.T) {
	const ofLease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/leasecast"
	schema, err := member.client.FlowcontrolV1().FlowSchemas().Get(t.Context(), "leasecast-hub", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		account, path string
		ours          bool
	}{
		"the read of a Lease":                {hubAccount, ofLease, true},
		"the read of a namespace":            {hubAccount, "/api/v1/namespaces/kube-system", true},
		"a list may wait":                    {hubAccount, "/apis/coordination.k8s.io/v1/leases", false},
		"other service accounts have theirs": {"default", ofLease, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			header := headerOf(t, member.as(t, hubNamespace, test.account), test.path)
			got := header.Get("X-Kubernetes-Pf-Flowschema-Uid")
			if got == "" {
				t.Fatal("the API server does not say which FlowSchema it used")
			}
			if (got == string(schema.UID)) != test.ours {
				t.Errorf("FlowSchema %s, want ours (%s): %v", got, schema.UID, test.ours)
			}
		})
	}
	levels := member.client.FlowcontrolV1().PriorityLevelConfigurations()
	level, err := levels.Get(t.Context(), "leader-election", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	header := headerOf(t, member.as(t, hubNamespace, hubAccount), ofLease)
	if got := header.Get("X-Kubernetes-Pf-Prioritylevel-Uid"); got != string(level.UID) {
		t.Errorf("priority level %s, want leader-election (%s)", got, level.UID)
	}
}

func headerOf(t *testing.T, config *rest.Config, path string) http.Header {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return response.Header
}

func deployedHub(t *testing.T) *appsv1.Deployment {
	t.Helper()
	deployments := management.client.AppsV1().Deployments(hubNamespace)
	deployment, err := deployments.Get(t.Context(), hubAccount, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return deployment
}

func TestThePodOfTheHubIsAdmittedInARestrictedNamespace(t *testing.T) {
	deployment := deployedHub(t)
	template := deployment.Spec.Template
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Name = "hub"
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	pods := management.client.CoreV1().Pods(hubNamespace)
	if _, err := pods.Create(t.Context(), pod, dryRun); err != nil {
		t.Fatal(err)
	}
	pod.Spec.Containers[0].SecurityContext = nil // it is the namespace that is strict
	if _, err := pods.Create(t.Context(), pod, dryRun); !apierrors.IsForbidden(err) {
		t.Errorf("a Pod without a security context: %v, want forbidden", err)
	}
}

func TestTheHubIsAPairOnTwoNodesIfThereAreTwo(t *testing.T) {
	deployment := deployedHub(t)
	if n := *deployment.Spec.Replicas; n != 2 {
		t.Errorf("%d replicas, want 2", n)
	}
	spread := deployment.Spec.Template.Spec.TopologySpreadConstraints
	if len(spread) != 1 ||
		spread[0].TopologyKey != corev1.LabelHostname ||
		spread[0].WhenUnsatisfiable != corev1.ScheduleAnyway {
		t.Fatalf("spread: %+v", spread)
	}
	selector, err := metav1.LabelSelectorAsSelector(spread[0].LabelSelector)
	if err != nil {
		t.Fatal(err)
	}
	if own := deployment.Spec.Template.Labels; !selector.Matches(labels.Set(own)) {
		t.Errorf("spread from Pods with %v, its own have %v", selector, own)
	}
}

func TestTheHeapIsKeptBelowTheContainersLimit(t *testing.T) {
	container := deployedHub(t).Spec.Template.Spec.Containers[0]
	limit := container.Resources.Limits.Memory().Value()
	want := []corev1.EnvVar{{Name: "GOGC", Value: "50"}, {Name: "GOMEMLIMIT", Value: fmt.Sprintf("%dMiB", limit/5*4>>20)}}
	for _, e := range want {
		if !slices.Contains(container.Env, e) {
			t.Errorf("the environment %v lacks %v", container.Env, e)
		}
	}
}

func TestTheHubKnowsTheFlagsOfItsDeployment(t *testing.T) {
	deployment := deployedHub(t)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	flags := deployment.Spec.Template.Spec.Containers[0].Args
	args := slices.Concat([]string{"run", "../cmd/leasecast-hub"}, flags, []string{"-h"})
	out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("leasecast-hub %v: %v\n%s", args, err, out)
	}
}

func TestAFurtherFleetIsAnOverlay(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	fleet, err := filepath.Rel(dir, filepath.Join(here, "fleet"))
	if err != nil {
		t.Fatal(err)
	}
	overlay := fmt.Sprintf("namespace: another-fleet\nresources: [%s]\n", fleet)
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(overlay), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := management.kubectl(t.Context(), "create", "namespace", "another-fleet"); err != nil {
		t.Fatal(err)
	}
	if management.may(t, hubUser, "list", "another-fleet", "", "secrets", "", "") {
		t.Fatal("the hub may read the Secrets of a namespace that it was not given")
	}
	if _, err := management.kubectl(t.Context(), "apply", "-k", dir); err != nil {
		t.Fatal(err)
	}
	if !management.may(t, hubUser, "list", "another-fleet", "", "secrets", "", "") {
		t.Fatal("the hub may not read the Secrets of its further fleet")
	}
}

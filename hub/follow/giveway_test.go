package follow

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// workload is a Deployment or StatefulSet with so many replicas.
func workload(kind, name string, replicas int) string {
	return fmt.Sprintf("apiVersion: apps/v1\nkind: %s\nmetadata: {name: %s}\n"+
		"spec: {replicas: %d, selector: {matchLabels: {app: %s}}}\n", kind, name, replicas, name)
}

func TestWhatIsStopped(t *testing.T) {
	two, none := workload("Deployment", "a", 2), workload("Deployment", "a", 0)
	const cronJob, jobs = "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: a}\nspec: {suspend: false}\n",
		"CronJob shop/a by batch.kubernetes.io/job-namea-"
	for name, test := range map[string]struct{ leader, followers, all, want string }{
		"nothing":                      {settings("a"), settings("a"), "", ""},
		"scaled down":                  {two, none, "", "Deployment shop/a by app=a"},
		"not in the followers' form":   {workload("StatefulSet", "a", 2), "", "", "StatefulSet shop/a by app=a"},
		"it runs everywhere":           {two, workload("Deployment", "a", 1), "", ""},
		"replicas are left open there": {two, strings.Replace(none, "replicas: 0,", "", 1), "", ""},
		"for all":                      {"", "", two, ""},
		"suspended":                    {cronJob, strings.Replace(cronJob, "false", "true", 1), "", jobs},
		"with an empty selector": {
			"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {selector: {}}\n", "", "", "",
		},
	} {
		m := parse([]source{
			of(v1alpha1.RoleLeader, test.leader), of(v1alpha1.RoleFollowers, test.followers), of(v1alpha1.RoleAll, test.all),
		})
		var got []string
		runs := m.stopped("shop", true)
		for is := range maps.Keys(runs) {
			got = append(got, is.String()+" by "+runs[is].selector+runs[is].prefix)
		}
		slices.Sort(got)
		if strings.Join(got, ", ") != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	alone := parse([]source{of(v1alpha1.RoleLeader, two)})
	if got := alone.stopped("shop", false); len(got) != 0 {
		t.Errorf("it is not pruned, so it goes on: %v", got)
	}
}

// A cluster has given way only if it is known what the set runs.
func TestWhatCannotBeReadMayRun(t *testing.T) {
	missing := []v1alpha1.ResourceProblem{{Object: "ConfigMap a", Message: "it is missing"}}
	rejected := []v1alpha1.ResourceProblem{{Object: "Service a", Message: "it is rejected"}}
	for name, test := range map[string]struct {
		f        form
		runs     string
		problems []v1alpha1.ResourceProblem
		err      error
		want     string
	}{
		"a Pod is left":         {form{whole: true}, "a", nil, nil, "Pods are left, or may be created, of a"},
		"an object is rejected": {form{whole: true}, "", rejected, nil, ""},
		"a source is missing":   {form{problems: missing}, "", missing, nil, "ConfigMap a: it is missing"},
		"the cluster is silent": {form{whole: true}, "", rejected, errors.New("no answer"), "Service a: it is rejected"},
		"it is silent, and again": {
			form{problems: missing}, "", append(missing, rejected...), errRuns, "Service a: it is rejected",
		},
	} {
		if got := obstacle(test.f, test.runs, test.problems, test.err); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// A workload has stopped if its controller creates no Pod, and none is left in the workload's own namespace.
func TestAWorkloadHasStopped(t *testing.T) {
	deployments := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	const zero = `{"metadata":{"generation":2},"spec":{"replicas":0},"status":{"observedGeneration":2}}`
	for name, test := range map[string]struct {
		object, pod string // pod is the namespace of one that is left
		want        error
	}{
		"deleted":   {"", "", nil},
		"suspended": {`{"spec":{"suspend":true}}`, "", nil},
		"suspended, with an active Job": {
			`{"spec":{"suspend":true},"status":{"active":[{"kind":"Job","name":"web-1"}]}}`, "", errRuns,
		},
		"a Pod is left":                {zero, "bank", errRuns},
		"a Pod of another namespace":   {zero, "shop", nil},
		"not observed yet":             {strings.Replace(zero, `n":2},"spec"`, `n":3},"spec"`, 1), "", errRuns},
		"a ReplicaSet has replicas":    {strings.Replace(zero, `"observed`, `"replicas":1,"observed`, 1), "", errRuns},
		"it has replicas":              {strings.Replace(zero, `"replicas":0`, `"replicas":1`, 1), "", errRuns},
		"its replicas are left open":   {strings.Replace(zero, `"replicas":0`, ``, 1), "", errRuns},
		"it is no object that is read": {`[]`, "", errRuns},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			switch r.URL.Path {
			case "/apis/apps/v1/namespaces/bank/deployments/web":
				if test.object == "" {
					w.WriteHeader(http.StatusNotFound)
				}
				_, _ = fmt.Fprint(w, test.object)
			case "/api/v1/namespaces/" + test.pod + "/pods":
				_, _ = fmt.Fprint(w, podList(`{"metadata":{"name":"web-1"}}`))
			default:
				_, _ = fmt.Fprint(w, podList(""))
			}
		}))
		config := &rest.Config{Host: server.URL}
		resource := kind{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, true}
		p := &pass{
			context: t.Context(), of: &v1alpha1.LeaderResourceSet{Spec: v1alpha1.LeaderResourceSetSpec{Namespace: "shop"}},
			objects: metadata.NewForConfigOrDie(config), client: authorizationclient.NewForConfigOrDie(config),
			inventory: &inventory{of: map[schema.GroupVersionKind]*kindState{deployments: {kind: resource}}},
		}
		is := id{deployments.GroupKind(), "bank", "web"}
		if err := p.hasStopped(is, pods{selector: "app=web", of: deployments}); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
		server.Close()
	}
}

func podList(item string) string {
	return `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","items":[` + item + `]}`
}

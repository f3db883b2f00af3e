package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	proc "github.com/leasecast/leasecast/e2e/process"
)

const (
	// argocdAssets is the environment variable that names the folder of the ApplicationSet controller.
	argocdAssets = "ARGOCD_ASSETS"
	argocdModule = "github.com/argoproj/argo-cd/v3"
	// argocdLatest is how long Argo CD may take to act on a record: it reads it every 10 s, as the sample says.
	argocdLatest = 10*time.Second + soon
)

// argocdProgram is the real ApplicationSet controller.
func argocdProgram(t *testing.T) string {
	program := filepath.Join(os.Getenv(argocdAssets), "argocd")
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%s must name the folder of argocd: run `make argocd`: %v", argocdAssets, err)
	}
	return program
}

// argocdManifests is the folder of Argo CD's own manifests, in its module. The module needs a newer Go than this one.
func argocdManifests(t *testing.T) string {
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", argocdModule)
	cmd.Dir, cmd.Env = "../argocd", append(os.Environ(), "GOTOOLCHAIN=auto")
	var module struct{ Dir string }
	musttest.Do(t, json.Unmarshal(musttest.Get(cmd.Output())(t), &module))
	return filepath.Join(module.Dir, "manifests")
}

// installArgoCD applies Argo CD's CRDs, its settings, and the account and the Role of its ApplicationSet controller. It
// creates what Argo CD's server would: the project, and a Secret for each cluster.
func (w *world) installArgoCD(manifests string) {
	hub := w.Servers.Hub()
	musttest.Get(envtest.InstallCRDs(hub.AdminConfig(), envtest.CRDInstallOptions{
		Paths: []string{filepath.Join(manifests, "crds")}, ErrorIfPathMissing: true, MaxTime: time.Minute,
	}))(w.T)
	for _, folder := range []string{"config", "applicationset-controller"} {
		w.kubectl(hub, "-n", w.Fleet, "apply", "-k", filepath.Join(manifests, "base", folder))
	}
	project := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"destinations": []any{map[string]any{"server": "*", "namespace": "*"}}, "sourceRepos": []any{"*"},
	}}}
	project.SetGroupVersionKind(schema.GroupVersionKind{Group: "argoproj.io", Version: "v1alpha1", Kind: "AppProject"})
	project.SetNamespace(w.Fleet)
	project.SetName("default")
	w.Must(w.Hub.Create(w.T.Context(), project))
	for _, m := range all {
		w.Must(w.Hub.Create(w.T.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: w.Fleet, Name: "cluster-" + m, Labels: map[string]string{"argocd.argoproj.io/secret-type": "cluster"},
			},
			StringData: map[string]string{"name": m, "server": w.Servers.Member(m).AdminConfig().Host, "config": "{}"},
		}))
	}
}

// startArgoCD starts the real ApplicationSet controller with the rights of its own account.
func (w *world) startArgoCD(program string) {
	dir := w.T.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	account := musttest.Get(w.Servers.Hub().TokenConfig(w.T.Context(), w.Fleet, "argocd-applicationset-controller"))(w.T)
	w.Must(fleet.WriteKubeconfig(kubeconfig, "argocd", account))
	p := musttest.Get(proc.Start("argocd", filepath.Join(dir, "log"), "env", "KUBECONFIG="+kubeconfig, program,
		"--namespace="+w.Fleet, "--metrics-addr=0", "--probe-addr=0", "--webhook-addr=127.0.0.1:0", "--logformat=text"))(w.T)
	w.T.Cleanup(func() {
		if w.T.Failed() {
			w.T.Log(p.Tail())
		}
		w.Must(p.Stop())
	})
}

// awaitApplication waits until Argo CD has one Application that is not being deleted, with the cluster that it is for.
// Empty: none.
func (w *world) awaitApplication(cluster string, within time.Duration) {
	w.T.Helper()
	w.Eventually(fmt.Sprintf("the Application is for cluster %q", cluster), within, func() error {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: "argoproj.io", Version: "v1alpha1", Kind: "ApplicationList"})
		must.Do(w.Hub.List(w.T.Context(), list, client.InNamespace(w.Fleet)))
		got := ""
		for _, o := range list.Items {
			if o.GetDeletionTimestamp() == nil {
				to, _, _ := unstructured.NestedString(o.Object, "spec", "destination", "name")
				got += o.GetName() + " to " + to
			}
		}
		want := ""
		if cluster != "" {
			want = "shop-" + cluster + " to " + cluster
		}
		return must.ErrorIf(got != want, "%q", got)
	})
}

// The sample is applied as it is. No cluster leads twice: Argo CD's application controller, which ends the deletion of
// an Application, does not run here.
func TestArgoCDDeploysWhereTheLeaderIs(t *testing.T) {
	t.Parallel()
	program := argocdProgram(t)
	w := newWorldIn(t, "argocd", standard, three)
	w.Namespace("shop", all...)
	w.installArgoCD(argocdManifests(t))
	w.kubectl(w.Servers.Hub(), "apply", "-f", "argocd.yaml")
	w.startHub()
	w.Leads("east", "shop", firstElection, all...)
	w.startArgoCD(program)
	w.awaitApplication("east", argocdLatest)

	t.Log("the leader is lost")
	w.Servers.Member("east").Proxy().BlackHole()
	w.awaitApplication("west", w.lost()+argocdLatest)

	t.Log("a planned change: nobody leads until the old term has ended")
	w.order("shop", "south")
	w.awaitApplication("", argocdLatest)
	w.Leads("south", "shop", w.ordered(), "west", "south")
	w.awaitApplication("south", argocdLatest)
}

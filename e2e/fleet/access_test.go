package fleet

import (
	"path/filepath"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/tools/clientcmd"
)

var readNamespaces = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"namespaces"},
	Verbs: []string{"get"}}}

func kubeconfigFiles(t *testing.T, f *Fleet) {
	dir := filepath.Join(t.TempDir(), "out")
	must(t, f.WriteKubeconfigs(dir))
	for _, name := range []string{"hub", "east", "west"} {
		config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, name+".kubeconfig"))
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := getNamespace(t, config, "default"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

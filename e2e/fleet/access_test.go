package fleet

import (
	"context"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func userBound(t *testing.T, f *Fleet) {
	west := f.Member("west")
	admin := newClient(t, west.AdminConfig())
	makeNamespace(t, admin, "team")
	grant := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "editors"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "team-editors"}},
	}
	if _, err := admin.RbacV1().RoleBindings("team").Create(t.Context(), grant, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config, err := west.UserConfig("jo", "team-editors")
	must(t, err)
	jo := newClient(t, config)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "note"}}
	await(t, "the grant works", func(ctx context.Context) error {
		_, err := jo.CoreV1().ConfigMaps("team").Create(ctx, object, metav1.CreateOptions{})
		return err
	})
	if _, err := jo.CoreV1().ConfigMaps("default").Create(t.Context(), object,
		metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("in another namespace: want it forbidden, got %v", err)
	}
	if _, err := jo.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "jos"},
	}, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("making namespaces: want it forbidden, got %v", err)
	}
}

var readNamespaces = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"namespaces"},
	Verbs: []string{"get"}}}

func serviceAccountBound(t *testing.T, f *Fleet) {
	west := f.Member("west")
	config, err := west.ServiceAccountConfig(t.Context(), "robots", "reader", readNamespaces)
	must(t, err)
	c := newClient(t, config)
	if _, err := c.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Errorf("the rules do not count at once: %v", err)
	}
	if _, err := c.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("want it forbidden to list, got %v", err)
	}
	if _, err := west.ServiceAccountConfig(t.Context(), "robots", "reader", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the rules were taken back, but it may still read: %v", err)
	}
}

func credentialsApart(t *testing.T, f *Fleet) {
	east, west := f.Member("east"), f.Member("west")
	token, err := east.ServiceAccountConfig(t.Context(), "default", "stranger", readNamespaces)
	must(t, err)
	for kind, config := range map[string]*rest.Config{"certificate": east.AdminConfig(), "token": token} {
		config.Host, config.CAData = west.AdminConfig().Host, west.AdminConfig().CAData
		if _, err := getNamespace(t, config, "default"); !apierrors.IsUnauthorized(err) {
			t.Errorf("%s: want it refused by another member, got %v", kind, err)
		}
	}
}

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

package rights_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	kubernetesfake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/rights"
)

const patience = 30 * time.Second

var own = rights.Of("management-cluster/leasecast-system")

// member is a real API server, which the tests share.
var member *fleet.Server

func TestMain(m *testing.M) {
	os.Exit(fleet.Main(m, nil, func(_ context.Context, f *fleet.Fleet, _ string) error {
		member = f.Hub()
		return nil
	}))
}

func clientFor(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	config.Timeout = patience
	client := musttest.Get(kubernetes.NewForConfig(config))(t)
	return client
}

// installed installs the rights, and returns clients of an administrator and of the hub's user.
func installed(t *testing.T) (admin, hub *kubernetes.Clientset) {
	t.Helper()
	admin, config := clientFor(t, member.AdminConfig()), member.AdminConfig()
	musttest.Do(t, own.Install(t.Context(), admin))
	config.Impersonate.UserName = own.User()
	hub = clientFor(t, config)
	musttest.Eventually(t, patience, "the rights count", func(ctx context.Context) error {
		_, err := hub.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		return err
	})
	return admin, hub
}

func TestIsAdministrator_OfClusterAPIsKubeconfigOnly(t *testing.T) {
	admin, hub := installed(t)
	prepared := musttest.Get(member.ServiceAccountConfig(t.Context(), "prepared", "hub", []rbacv1.PolicyRule{
		{APIGroups: []string{"*"}, Resources: []string{"leases"}, Verbs: []string{"*"}},
	}))(t)
	hardened := kubernetesfake.NewClientset()
	hardened.PrependReactor("create", "selfsubjectaccessreviews",
		func(clienttesting.Action) (bool, runtime.Object, error) {
			reviews := authorizationv1.Resource("selfsubjectaccessreviews")
			return true, nil, apierrors.NewForbidden(reviews, "", errors.New("not here"))
		})
	for name, test := range map[string]struct {
		client kubernetes.Interface
		want   bool
	}{
		"Cluster API's kubeconfig":       {admin, true},
		"a prepared kubeconfig":          {clientFor(t, prepared), false},
		"a kubeconfig that may not ask":  {hardened, false},
		"the hub's user, once installed": {hub, false},
	} {
		got, err := rights.IsAdministrator(t.Context(), test.client)
		if err != nil || got != test.want {
			t.Errorf("%s: %v, %v; want %v", name, got, err, test.want)
		}
	}
}

func TestUser_DoesTheHubsWorkAndNoMore(t *testing.T) {
	_, hub := installed(t)
	began := time.Now()
	keeper := guard.NewKeeper(guard.Options{
		Member: hub, Hub: "hub", Fleet: "fleet", Log: logr.Discard(),
		Now:     func() time.Duration { return time.Hour + time.Since(began) },
		Changed: func() {}, Mended: func(string) {}, MayWrite: func() bool { return true },
	})
	musttest.Eventually(t, patience, "it guards Leases", func(ctx context.Context) error {
		keeper.Keep(ctx, guard.Desired{})
		return keeper.Unguarded()
	})
	if err := keeper.Remove(t.Context(), true); err != nil {
		t.Error(err)
	}
	for name, test := range map[string]struct {
		to   authorizationv1.ResourceAttributes
		want bool
	}{
		"writes Leases": {authorizationv1.ResourceAttributes{
			Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: "shop"}, true},
		"reads Secrets": {authorizationv1.ResourceAttributes{Verb: "get", Resource: "secrets", Namespace: "shop"}, false},
		"impersonates":  {authorizationv1.ResourceAttributes{Verb: "impersonate", Resource: "users"}, false},
		"raises its rights": {authorizationv1.ResourceAttributes{
			Verb: "update", Group: rbacv1.GroupName, Resource: "clusterroles", Name: own.Name()}, false},
	} {
		review, err := hub.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(),
			&authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &test.to},
			}, metav1.CreateOptions{})
		if err != nil || review.Status.Allowed != test.want {
			t.Errorf("%s: %v, %v; want %v", name, review.Status.Allowed, err, test.want)
		}
	}
}

func TestInstall_RevertsEditsAndKeepsAdditions(t *testing.T) {
	admin, _ := installed(t)
	roles := admin.RbacV1().ClusterRoles()
	role := musttest.Get(roles.Get(t.Context(), own.Name(), metav1.GetOptions{}))(t)
	want := len(role.Rules)
	role.Rules = role.Rules[:1]
	role.Annotations = map[string]string{"example.com/note": "seen"}
	_ = musttest.Get(roles.Update(t.Context(), role, metav1.UpdateOptions{}))(t)
	musttest.Do(t, own.Install(t.Context(), admin))
	role, err := roles.Get(t.Context(), own.Name(), metav1.GetOptions{})
	if err != nil || len(role.Rules) != want || role.Annotations["example.com/note"] != "seen" {
		t.Errorf("%+v, %v", role, err)
	}
}

// Two hubs may know one member.
func TestRemove_LeavesTheRightsOfOtherHubs(t *testing.T) {
	other := rights.Of("management-cluster/other-system")
	admin, hub := installed(t)
	musttest.Do(t, other.Install(t.Context(), admin))
	for range 2 { // what is missing counts as removed
		musttest.Do(t, other.Remove(t.Context(), admin))
	}
	get := metav1.GetOptions{}
	for name, left := range map[string]bool{own.Name(): true, other.Name(): false} {
		for kind, err := range map[string]error{
			"ClusterRole":      second(admin.RbacV1().ClusterRoles().Get(t.Context(), name, get)),
			"binding":          second(admin.RbacV1().ClusterRoleBindings().Get(t.Context(), name, get)),
			"fencing binding":  second(admin.RbacV1().ClusterRoleBindings().Get(t.Context(), name+"-fencing", get)),
			"follow binding":   second(admin.RbacV1().ClusterRoleBindings().Get(t.Context(), name+"-follow", get)),
			"requires binding": second(admin.RbacV1().ClusterRoleBindings().Get(t.Context(), name+"-requires", get)),
			"FlowSchema":       second(admin.FlowcontrolV1().FlowSchemas().Get(t.Context(), name, get)),
		} {
			if left && err != nil || !left && !apierrors.IsNotFound(err) {
				t.Errorf("%s %s: %v, want it: %v", kind, name, err, left)
			}
		}
	}
	if _, err := hub.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestRemove_TriesEverything(t *testing.T) {
	client, tried := kubernetesfake.NewClientset(), 0
	client.PrependReactor("delete", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		tried++
		return true, nil, apierrors.NewInternalError(errors.New("no etcd"))
	})
	if err := own.Remove(t.Context(), client); !apierrors.IsInternalError(err) || tried != 6 {
		t.Errorf("%v after %d deletions, want an error after 6", err, tried)
	}
}

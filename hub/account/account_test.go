package account_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	kubernetesfake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/hub/account"
	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/guard"
)

const patience = 30 * time.Second

// own is the account of a hub.
var own = account.Of("management-cluster/leasecast-system")

// member is a real API server, which the tests share.
var member *fleet.Server

func TestMain(m *testing.M) {
	os.Exit(fleet.Main(m, nil, func(_ context.Context, f *fleet.Fleet, _ string) error {
		member = f.Hub()
		return nil
	}))
}

// fixedClock shows one reading.
type fixedClock lease.Reading

func (c fixedClock) Now() lease.Reading { return lease.Reading(c) }

var now = fixedClock{Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Boot: time.Hour}

func clientFor(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	config.Timeout = patience
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// withToken is who has a token.
func withToken(t *testing.T, token string) *kubernetes.Clientset {
	t.Helper()
	config := rest.AnonymousClientConfig(member.AdminConfig())
	config.BearerToken = token
	return clientFor(t, config)
}

// eventually waits until the condition returns nil.
func eventually(t *testing.T, what string, condition func(ctx context.Context) error) {
	t.Helper()
	last := errors.New("never asked")
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		last = condition(ctx)
		return last == nil, nil
	}); err != nil {
		t.Fatalf("%s: %v; last: %v", what, err, last)
	}
}

// installed installs the account, and returns who has a token of it.
func installed(t *testing.T, admin *kubernetes.Clientset) (*kubernetes.Clientset, account.Credentials) {
	t.Helper()
	if err := own.Install(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	c, err := own.Request(t.Context(), admin, now)
	if err != nil {
		t.Fatal(err)
	}
	hub := withToken(t, c.Token)
	eventually(t, "the rights count", func(ctx context.Context) error {
		_, err := hub.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		return err
	})
	return hub, c
}

// may asks whether a user may do something.
func may(t *testing.T, client kubernetes.Interface, a authorizationv1.ResourceAttributes) bool {
	t.Helper()
	review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &a},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}

func TestOnlyAnAdministratorIsAskedForAnAccount(t *testing.T) {
	admin := clientFor(t, member.AdminConfig())
	prepared, err := member.ServiceAccountConfig(t.Context(), "prepared", "hub", []rbacv1.PolicyRule{
		{APIGroups: []string{"*"}, Resources: []string{"leases"}, Verbs: []string{"*"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	hub, _ := installed(t, admin)
	hardened := kubernetesfake.NewClientset()
	hardened.PrependReactor("create", "selfsubjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(authorizationv1.Resource("selfsubjectaccessreviews"), "", errors.New("not here"))
	})
	for name, test := range map[string]struct {
		client kubernetes.Interface
		want   bool
	}{
		"one that may not even ask":      {hardened, false},
		"Cluster API's kubeconfig":       {admin, true},
		"one that somebody has prepared": {clientFor(t, prepared), false},
		"the account that the hub made":  {hub, false},
	} {
		got, err := account.Administrator(t.Context(), test.client)
		if err != nil || got != test.want {
			t.Errorf("%s: %v, %v; want %v", name, got, err, test.want)
		}
	}
}

func TestTheAccountDoesTheWorkAndNoMore(t *testing.T) {
	admin := clientFor(t, member.AdminConfig())
	hub, _ := installed(t, admin)
	if _, err := guard.Ensure(t.Context(), hub); err != nil {
		t.Errorf("it cannot guard: %v", err)
	}
	eventually(t, "the guard takes it for the hub", func(ctx context.Context) error { return guard.Verify(ctx, hub) })
	if err := guard.Remove(t.Context(), hub); err != nil {
		t.Error(err)
	}
	for name, test := range map[string]struct {
		to   authorizationv1.ResourceAttributes
		want bool
	}{
		"it writes Leases":             {authorizationv1.ResourceAttributes{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: "shop"}, true},
		"it reads no Secrets":          {authorizationv1.ResourceAttributes{Verb: "get", Resource: "secrets", Namespace: "shop"}, false},
		"it requests no tokens":        {authorizationv1.ResourceAttributes{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: account.Namespace, Name: string(own)}, false},
		"it does not raise its rights": {authorizationv1.ResourceAttributes{Verb: "update", Group: "rbac.authorization.k8s.io", Resource: "clusterroles", Name: string(own)}, false},
		"nor does it take itself out":  {authorizationv1.ResourceAttributes{Verb: "delete", Resource: "serviceaccounts", Namespace: account.Namespace, Name: string(own)}, false},
	} {
		if got := may(t, hub, test.to); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// An edit of the rights is repaired, and what others have added to the account stays.
func TestRightsThatWereEditedAreRepaired(t *testing.T) {
	admin := clientFor(t, member.AdminConfig())
	installed(t, admin)
	role, err := admin.RbacV1().ClusterRoles().Get(t.Context(), string(own), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := len(role.Rules)
	role.Rules = append(role.Rules[:1], rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}})
	role.Annotations = map[string]string{"example.com/note": "seen"}
	if _, err := admin.RbacV1().ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := own.Install(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	role, err = admin.RbacV1().ClusterRoles().Get(t.Context(), string(own), metav1.GetOptions{})
	if err != nil || len(role.Rules) != want || strings.Contains(fmt.Sprint(role.Rules), "secrets") || role.Annotations["example.com/note"] != "seen" {
		t.Errorf("%+v, %v", role, err)
	}
}

func TestNothingIsLeftOfTheAccount(t *testing.T) {
	admin := clientFor(t, member.AdminConfig())
	hub, _ := installed(t, admin)
	for range 2 { // what is missing counts as removed
		if err := own.Remove(t.Context(), admin); err != nil {
			t.Fatal(err)
		}
	}
	get := metav1.GetOptions{}
	for kind, err := range map[string]error{
		"ServiceAccount":     second(admin.CoreV1().ServiceAccounts(account.Namespace).Get(t.Context(), string(own), get)),
		"ClusterRole":        second(admin.RbacV1().ClusterRoles().Get(t.Context(), string(own), get)),
		"ClusterRoleBinding": second(admin.RbacV1().ClusterRoleBindings().Get(t.Context(), string(own), get)),
		"that for fencing":   second(admin.RbacV1().ClusterRoleBindings().Get(t.Context(), string(own)+"-fencing", get)),
		"FlowSchema":         second(admin.FlowcontrolV1().FlowSchemas().Get(t.Context(), string(own), get)),
	} {
		if !apierrors.IsNotFound(err) {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if _, err := own.Request(t.Context(), admin, now); !errors.Is(err, account.ErrMissing) {
		t.Errorf("a token of an account that is gone: %v", err)
	}
	eventually(t, "its tokens are refused", func(ctx context.Context) error {
		if _, err := hub.CoreV1().Namespaces().List(ctx, metav1.ListOptions{}); !apierrors.IsUnauthorized(err) && !apierrors.IsForbidden(err) {
			return fmt.Errorf("answered with %w", err)
		}
		return nil
	})
}

func TestWhatCannotBeRemovedKeepsNothingElse(t *testing.T) {
	for _, kind := range []string{"flowschemas", "clusterrolebindings", "clusterroles", "serviceaccounts"} {
		client, tried := kubernetesfake.NewClientset(), map[string]int{}
		client.PrependReactor("delete", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			tried[a.GetResource().Resource]++
			if a.GetResource().Resource == kind {
				return true, nil, apierrors.NewInternalError(errors.New("no etcd"))
			}
			return true, nil, nil
		})
		err := own.Remove(t.Context(), client)
		want := map[string]int{"flowschemas": 1, "clusterrolebindings": 2, "clusterroles": 1, "serviceaccounts": 1}
		if !apierrors.IsInternalError(err) || !maps.Equal(tried, want) {
			t.Errorf("%s are not removed: %v, tried %v, want %v", kind, err, tried, want)
		}
	}
}

// Two hubs may know one member. When one leaves, the other goes on.
func TestEachHubHasAnAccountForItself(t *testing.T) {
	admin := clientFor(t, member.AdminConfig())
	hub, _ := installed(t, admin)
	other := account.Of("management-cluster/other-system")
	if err := other.Install(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	if err := other.Remove(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	if _, err := hub.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := own.Request(t.Context(), admin, now); err != nil {
		t.Error(err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestWhoMayNotInstallTheAccountIsToldSo(t *testing.T) {
	config, err := member.UserConfig("nobody")
	if err != nil {
		t.Fatal(err)
	}
	client := clientFor(t, config)
	for name, err := range map[string]error{
		"install": own.Install(t.Context(), client), "remove": own.Remove(t.Context(), client),
		"request": second(own.Request(t.Context(), client, now)),
	} {
		if !errors.Is(err, account.ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A token is renewed ahead of time.
func TestWhenATokenIsRenewed(t *testing.T) {
	for name, test := range map[string]struct {
		granted       *int64
		renew, expire time.Duration
	}{
		"the member grants what was asked":    {ptr.To(int64(3600)), 45 * time.Minute, time.Hour},
		"the member grants less":              {ptr.To(int64(600)), 450 * time.Second, 10 * time.Minute},
		"the member says more than was asked": {ptr.To(int64(86400)), 45 * time.Minute, time.Hour},
		"the member says nothing of it":       {nil, 45 * time.Minute, time.Hour},
	} {
		client := kubernetesfake.NewClientset()
		client.PrependReactor("create", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, &authenticationv1.TokenRequest{
				Spec:   authenticationv1.TokenRequestSpec{ExpirationSeconds: test.granted},
				Status: authenticationv1.TokenRequestStatus{Token: "a-secret"},
			}, nil
		})
		c, err := own.Request(t.Context(), client, now)
		if err != nil || c.Renew-now.Boot != test.renew || c.Expire-now.Boot != test.expire {
			t.Errorf("%s: renewed after %v, expires after %v, %v", name, c.Renew-now.Boot, c.Expire-now.Boot, err)
		}
		for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
			if said := fmt.Sprintf(verb, c); strings.Contains(said, "secret") {
				t.Errorf("%s tells the token: %s", verb, said)
			}
		}
	}
}

func TestWhichAnswerHoldsAToken(t *testing.T) {
	longest := strings.Repeat("t", transport.MaxToken)
	for name, test := range map[string]struct {
		token string
		want  error
	}{
		"the longest that is sent": {longest, nil},
		"one that is longer":       {longest + "t", account.ErrRefused},
		"none":                     {"", account.ErrRefused},
	} {
		client := kubernetesfake.NewClientset()
		client.PrependReactor("create", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: test.token}}, nil
		})
		c, err := own.Request(t.Context(), client, now)
		if !errors.Is(err, test.want) || (err == nil) != (c.Token != "") || err != nil && len(err.Error()) > 200 {
			t.Errorf("%s: %d bytes, %v", name, len(c.Token), err)
		}
	}
}

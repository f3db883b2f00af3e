// Package config_test applies the manifests to real API servers, as people do: with kubectl.
package config_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

const timeout = 2 * time.Minute

// The management cluster, with config/default, and a member, with config/member and config/reader.
// The tests share them and only read.
var management, member *server

type server struct {
	*fleet.Server
	config     *rest.Config
	client     *kubernetes.Clientset
	kubeconfig string // the administrator's
	output     string // of kubectl apply
}

func TestMain(m *testing.M) {
	os.Exit(fleet.Main(m, []string{"east"}, func(ctx context.Context, f *fleet.Fleet, dir string) (err error) {
		if err = f.WriteKubeconfigs(dir); err != nil {
			return err
		}
		if management, err = newServer(ctx, f.Hub(), dir, "default"); err != nil {
			return err
		}
		if err = management.limitsSecrets(ctx); err != nil {
			return err
		}
		if member, err = newServer(ctx, f.Member("east"), dir, "member"); err != nil {
			return err
		}
		_, err = member.kubectl(ctx, "apply", "-k", "reader")
		return err
	}))
}

// newServer applies a folder of this one.
func newServer(ctx context.Context, of *fleet.Server, dir, folder string) (*server, error) {
	s := &server{Server: of, config: of.AdminConfig(), kubeconfig: filepath.Join(dir, of.Name()+".kubeconfig")}
	s.config.Timeout = timeout
	var err error
	if s.client, err = kubernetes.NewForConfig(s.config); err != nil {
		return nil, err
	}
	// Server-side and by force, because the fleet has made the CRDs already, and in another way.
	s.output, err = s.kubectl(ctx, "apply", "--server-side", "--force-conflicts", "-k", folder)
	return s, err
}

// limitsSecrets waits until the API server enforces the policy of the hub's Secrets, about a second after its creation.
func (s *server) limitsSecrets(ctx context.Context) error {
	config := rest.CopyConfig(s.config)
	config.Impersonate.UserName = hubUser
	hub, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	return must.Await(ctx, timeout, "the hub is kept from another Secret", func(ctx context.Context) error {
		_, err := hub.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "no-seal"}},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return must.ErrorIf(!strings.Contains(fmt.Sprint(err), "leasecast-hub-secrets"), "not by our policy: %v", err)
	})
}

// kubectl returns all that it prints.
func (s *server) kubectl(ctx context.Context, args ...string) (string, error) {
	path := filepath.Join(os.Getenv(fleet.AssetsVariable), "kubectl")
	cmd := exec.CommandContext(ctx, path, append([]string{"--kubeconfig", s.kubeconfig}, args...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %v: %w:\n%s", args, err, out.Bytes())
	}
	return out.String(), nil
}

// may asks whether a user may do something. Verbs and resources are as in a Role.
func (s *server) may(t *testing.T, user, verb, namespace, group, resource, name string) bool {
	t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: verb, Namespace: namespace, Group: group, Resource: resource, Name: name,
		},
	}}
	reviews := s.client.AuthorizationV1().SubjectAccessReviews()
	review = musttest.Get(reviews.Create(t.Context(), review, metav1.CreateOptions{}))(t)
	return review.Status.Allowed
}

// as is a client with a token of a service account.
func (s *server) as(t *testing.T, namespace, account string) *rest.Config {
	t.Helper()
	config := musttest.Get(s.TokenConfig(t.Context(), namespace, account))(t)
	config.Timeout = timeout
	return config
}

// granted makes a service account in the namespace default that has a role there, and returns its client. With rules it
// makes the role, too.
func (s *server) granted(t *testing.T, account, role string, rules ...rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	if len(rules) > 0 {
		musttest.Get(s.client.RbacV1().ClusterRoles().Create(t.Context(),
			&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role}, Rules: rules}, metav1.CreateOptions{}))(t)
	}
	for _, args := range [][]string{
		{"serviceaccount", account}, {"rolebinding", account, "--clusterrole=" + role, "--serviceaccount=default:" + account},
	} {
		_ = musttest.Get(s.kubectl(t.Context(), append([]string{"create", "--namespace=default"}, args...)...))(t)
	}
	return s.as(t, "default", account)
}

// typed is a client for our objects and Clusters.
func typed(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	c, err := client.New(config, client.Options{Scheme: scheme})
	musttest.Do(t, errors.Join(err, v1alpha1.AddToScheme(scheme), clusterv1.AddToScheme(scheme)))
	return c
}

// awaitEnforced waits until the API server has learned of a right or a policy, about a second after its creation.
func awaitEnforced(t *testing.T, enforced func(ctx context.Context) bool) {
	t.Helper()
	musttest.Eventually(t, timeout, "it is enforced", func(ctx context.Context) error {
		return must.ErrorIf(!enforced(ctx), "it is not yet")
	})
}

package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// tokenLife bounds the use of a fleet that runs on, because nothing renews its tokens.
const tokenLife = 30 * 24 * time.Hour

// requestTimeout bounds each request that this package makes for its caller.
const requestTimeout = 10 * time.Second

// rightsTimeout bounds how long an API server may take until it grants what is stored. It usually takes some
// milliseconds.
const rightsTimeout = time.Minute

// AdminConfig is for doing anything, straight at the API server. The caller owns the Lease. Like
// every configuration of this package it has no client-side rate limit and no timeout.
func (s *Server) AdminConfig() *rest.Config { return rest.CopyConfig(s.admin) }

// UserConfig is for acting as a user of these groups, by a client certificate, straight at the
// API server. The user can do what RBAC grants it: nothing, at first.
func (s *Server) UserConfig(name string, groups ...string) (*rest.Config, error) {
	user, err := s.ca.user(name, groups)
	if err != nil {
		return nil, err
	}
	config := s.bareConfig()
	config.CertData, config.KeyData = user.cert, user.key
	return config, nil
}

// ServiceAccountConfig is for acting as a service account, by a token of the TokenRequest API,
// straight at the API server. It makes the namespace, the account and a ClusterRole of the given
// rules with its binding, or brings them to these rules; each call requests a new token. It returns when the API server
// grants exactly these rules.
func (s *Server) ServiceAccountConfig(
	ctx context.Context, namespace, name string, rules []rbacv1.PolicyRule,
) (*rest.Config, error) {
	config, err := s.serviceAccountConfig(ctx, namespace, name, rules)
	if err != nil {
		return nil, fmt.Errorf("service account %s/%s of %s: %w", namespace, name, s.name, err)
	}
	return config, nil
}

func (s *Server) serviceAccountConfig(
	ctx context.Context, namespace, name string, rules []rbacv1.PolicyRule,
) (*rest.Config, error) {
	admin, err := s.adminClient(scheme.Scheme)
	if err != nil {
		return nil, err
	}
	if err := ensureNamespace(ctx, admin, namespace); err != nil {
		return nil, err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if _, err := controllerutil.CreateOrUpdate(ctx, admin, account, func() error { return nil }); err != nil {
		return nil, err
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: namespace + ":" + name}}
	mark := "/leasecast-fleet/" + string(uuid.NewUUID()) // of this version of the role; nobody serves the path
	if _, err := controllerutil.CreateOrUpdate(ctx, admin, role, func() error {
		role.Rules = append(slices.Clone(rules), rbacv1.PolicyRule{NonResourceURLs: []string{mark}, Verbs: []string{"get"}})
		return nil
	}); err != nil {
		return nil, err
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role.Name}}
	if _, err := controllerutil.CreateOrUpdate(ctx, admin, binding, func() error {
		binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}
		binding.Subjects = []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}}
		return nil
	}); err != nil {
		return nil, err
	}
	if err := awaitRight(ctx, admin, "system:serviceaccount:"+namespace+":"+name, mark); err != nil {
		return nil, err
	}
	return s.tokenConfig(ctx, admin, account)
}

// awaitRight returns when a user may get a path: the API server learns of roles and bindings some time after they are
// stored.
func awaitRight(ctx context.Context, admin client.Client, user, path string) error {
	last := errors.New("the API server does not grant the ClusterRole")
	err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, rightsTimeout, true,
		func(ctx context.Context) (bool, error) {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: user, NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
			}}
			if err := admin.Create(ctx, review); err != nil {
				last = err
				return false, nil
			}
			return review.Status.Allowed, nil
		})
	if err != nil {
		return fmt.Errorf("await its rights: %w; last: %w", err, last)
	}
	return nil
}

// TokenConfig is for acting as a service account that exists, by a token of the TokenRequest API, straight at the API
// server.
func (s *Server) TokenConfig(ctx context.Context, namespace, name string) (*rest.Config, error) {
	admin, err := s.adminClient(scheme.Scheme)
	if err != nil {
		return nil, err
	}
	config, err := s.tokenConfig(ctx, admin, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
		Name: name}})
	if err != nil {
		return nil, fmt.Errorf("service account %s/%s of %s: %w", namespace, name, s.name, err)
	}
	return config, nil
}

func (s *Server) tokenConfig(ctx context.Context, admin client.Client, account *corev1.ServiceAccount) (*rest.Config,
	error) {
	request := &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(tokenLife.Seconds()))},
	}
	if err := admin.SubResource("token").Create(ctx, account, request); err != nil {
		return nil, fmt.Errorf("request a token: %w", err)
	}
	config := s.bareConfig()
	config.BearerToken = request.Status.Token
	return config, nil
}

// adminClient is for this package's own requests, each of which ends within requestTimeout.
func (s *Server) adminClient(scheme *runtime.Scheme) (client.Client, error) {
	config := s.AdminConfig()
	config.Timeout = requestTimeout
	admin, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make a client of %s: %w", s.name, err)
	}
	return admin, nil
}

// bareConfig reaches the API server as nobody.
func (s *Server) bareConfig() *rest.Config {
	return &rest.Config{
		Host:            "https://" + s.port.addr(),
		TLSClientConfig: rest.TLSClientConfig{CAData: s.ca.certPEM},
		QPS:             -1,
	}
}

// ViaProxy returns a Lease of a configuration of this server that goes through its proxy.
func (s *Server) ViaProxy(config *rest.Config) *rest.Config {
	proxied := rest.CopyConfig(config)
	proxied.Host = "https://" + s.proxy.Addr()
	return proxied
}

// Kubeconfig is a kubeconfig file for the administrator, straight at the API server.
func (s *Server) Kubeconfig() ([]byte, error) { return Kubeconfig(s.name, s.admin) }

// ProxiedKubeconfig is a kubeconfig file for the administrator, through the proxy.
func (s *Server) ProxiedKubeconfig() ([]byte, error) {
	return Kubeconfig(s.name, s.ViaProxy(s.admin))
}

// Kubeconfig writes a configuration of this package as a kubeconfig file whose cluster, user and
// context have the given name. (What reads the file gets client-go's default rate limit: a
// kubeconfig cannot say otherwise.)
func Kubeconfig(name string, config *rest.Config) ([]byte, error) {
	file := clientcmdapi.NewConfig()
	file.Clusters[name] = &clientcmdapi.Cluster{
		Server:                   config.Host,
		CertificateAuthorityData: config.CAData,
	}
	file.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData,
		ClientKeyData:         config.KeyData,
		Token:                 config.BearerToken,
	}
	file.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	file.CurrentContext = name
	content, err := clientcmd.Write(*file)
	if err != nil {
		return nil, fmt.Errorf("write the kubeconfig of %s: %w", name, err)
	}
	return content, nil
}

// WriteKubeconfig writes [Kubeconfig] into a file that only its owner may read.
func WriteKubeconfig(file, name string, config *rest.Config) error {
	content, err := Kubeconfig(name, config)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return fmt.Errorf("write the kubeconfig of %s: %w", name, err)
	}
	return nil
}

// WriteKubeconfigs writes <name>.kubeconfig of every server into a folder, which it makes if
// need be: for the administrator, straight at the API server, for use with kubectl.
func (f *Fleet) WriteKubeconfigs(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the folder for kubeconfigs: %w", err)
	}
	for _, s := range f.Servers() {
		if err := WriteKubeconfig(filepath.Join(dir, s.name+".kubeconfig"), s.name, s.admin); err != nil {
			return err
		}
	}
	return nil
}

package fleet

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
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
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/certs"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/leasecast/leasecast/e2e/must"
)

const (
	// tokenLife bounds the life of a fleet: nothing renews its tokens.
	tokenLife = 30 * 24 * time.Hour
	// requestTimeout bounds each request that this package makes for its caller.
	requestTimeout = 10 * time.Second
	// rightsTimeout bounds how long an API server may take to enforce a stored role. It usually takes milliseconds.
	rightsTimeout = time.Minute
)

// AdminConfig returns the administrator's configuration, straight at the API server. No configuration of this package
// has a client-side rate limit or a timeout.
func (s *Server) AdminConfig() *rest.Config { return rest.CopyConfig(s.admin) }

// UserConfig returns a configuration with a client certificate for a user of these groups, straight at the API server.
// RBAC grants the user nothing at first.
func (s *Server) UserConfig(name string, groups ...string) (*rest.Config, error) {
	return s.UserConfigUntil(time.Now().Add(certs.DefaultCertDuration), name, groups...)
}

// UserConfigUntil is UserConfig with a client certificate that expires at an instant.
func (s *Server) UserConfigUntil(expiry time.Time, name string, groups ...string) (*rest.Config, error) {
	user, err := s.ca.sign(certs.Config{CommonName: name, Organization: groups,
		Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, expiry)
	config := s.anonymousConfig()
	config.CertData, config.KeyData = user.Cert, user.Key
	return config, err
}

// ServiceAccountConfig returns a configuration with a token of a service account, straight at the API server. It
// creates or updates the namespace, the account and a ClusterRole of the given rules with its binding. It returns when
// the API server enforces these rules.
func (s *Server) ServiceAccountConfig(ctx context.Context, namespace, name string, rules []rbacv1.PolicyRule) (
	*rest.Config, error) {
	mark := "/leasecast-fleet/" + string(uuid.NewUUID()) // of this version of the role; the path is not served
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: namespace + ":" + name}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: role.ObjectMeta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	}
	return must.Return(func() *rest.Config {
		must.Do(must.Try(func() {
			must.Get(controllerutil.CreateOrUpdate(ctx, s.client, role, func() error {
				role.Rules = append(slices.Clone(rules), rbacv1.PolicyRule{NonResourceURLs: []string{mark}, Verbs: []string{"get"}})
				return nil
			}))
			s.ensureNamespace(ctx, namespace)
			must.Do(client.IgnoreAlreadyExists(s.client.Create(ctx, account)))
			must.Do(client.IgnoreAlreadyExists(s.client.Create(ctx, binding)))
			s.awaitRight(ctx, "system:serviceaccount:"+namespace+":"+name, mark)
		}), "service account %s/%s of %s", namespace, name, s.name)
		return must.Get(s.TokenConfig(ctx, namespace, name))
	})
}

// awaitRight returns when a user may get a path.
func (s *Server) awaitRight(ctx context.Context, user, path string) {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, rightsTimeout, true,
		func(ctx context.Context) (bool, error) {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: user, NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
			}}
			last = s.client.Create(ctx, review)
			return last == nil && review.Status.Allowed, nil
		})
	if err != nil {
		must.Fail("await its rights: %w (last answer: %w)", err, last)
	}
}

// TokenConfig returns a configuration with a token of a service account that exists, straight at the API server.
func (s *Server) TokenConfig(ctx context.Context, namespace, name string) (*rest.Config, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	request := &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(tokenLife.Seconds()))},
	}
	err := s.client.SubResource("token").Create(ctx, account, request)
	if err != nil {
		err = fmt.Errorf("request a token of service account %s/%s of %s: %w", namespace, name, s.name, err)
	}
	config := s.anonymousConfig()
	config.BearerToken = request.Status.Token
	return config, err
}

func (s *Server) anonymousConfig() *rest.Config {
	return &rest.Config{Host: "https://" + s.address, TLSClientConfig: rest.TLSClientConfig{CAData: s.ca.pem()}, QPS: -1}
}

func (s *Server) ensureNamespace(ctx context.Context, name string) {
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	must.Do(client.IgnoreAlreadyExists(s.client.Create(ctx, object)), "create namespace %s", name)
}

// ViaProxy returns a copy of a configuration of this server that goes through its proxy.
func (s *Server) ViaProxy(config *rest.Config) *rest.Config {
	proxied := rest.CopyConfig(config)
	proxied.Host = "https://" + s.proxy.Addr()
	return proxied
}

// ProxiedKubeconfig is a kubeconfig file for the administrator, through the proxy.
func (s *Server) ProxiedKubeconfig() ([]byte, error) { return Kubeconfig(s.name, s.ViaProxy(s.admin)) }

// Kubeconfig writes a configuration of this package as a kubeconfig file whose cluster, user and context have the given
// name. Its readers get client-go's default rate limit, which a kubeconfig cannot set.
func Kubeconfig(name string, config *rest.Config) ([]byte, error) {
	file := clientcmdapi.NewConfig()
	file.Clusters[name] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	file.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken,
	}
	file.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	file.CurrentContext = name
	return clientcmd.Write(*file)
}

// TokenKubeconfig is [Kubeconfig] of a server that is known by its certificate, with a token.
func TokenKubeconfig(url string, known *x509.Certificate, token string) ([]byte, error) {
	return Kubeconfig("server", &rest.Config{
		Host: url, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: certs.EncodeCertPEM(known)},
	})
}

// WriteKubeconfig writes [Kubeconfig] into a file that only its owner may read.
func WriteKubeconfig(file, name string, config *rest.Config) error {
	content, err := Kubeconfig(name, config)
	if err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o600)
}

// WriteKubeconfigs writes <name>.kubeconfig of every server into a folder, which it creates if need be. They are the
// administrator's, straight at the API servers, for use with kubectl.
func (f *Fleet) WriteKubeconfigs(dir string) error {
	errs := []error{os.MkdirAll(dir, 0o755)}
	for _, s := range f.Servers() {
		errs = append(errs, WriteKubeconfig(filepath.Join(dir, s.name+".kubeconfig"), s.name, s.admin))
	}
	return errors.Join(errs...)
}

// authority signs the certificates of one server and of its users.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// newAuthority makes an authority that is valid since an hour ago, so that a drill may set a clock back.
func newAuthority(name string) (*authority, error) {
	return must.Return(func() *authority {
		key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
		config := cert.Config{CommonName: name, NotBefore: time.Now().Add(-time.Hour)}
		return &authority{must.Get(cert.NewSelfSignedCACert(config, key)), key}
	})
}

func (a *authority) pem() []byte { return certs.EncodeCertPEM(a.cert) }

// sign makes a private key and its certificate.
func (a *authority) sign(config certs.Config, expiry time.Time) (certs.KeyPair, error) {
	return must.Return(func() certs.KeyPair {
		key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
		signed := must.Get(config.NewSignedCert(key, a.cert, a.key))
		signed.NotAfter = expiry.UTC() // NewSignedCert has one lifetime for all
		raw := must.Get(x509.CreateCertificate(rand.Reader, signed, a.cert, key.Public(), a.key))
		signed = must.Get(x509.ParseCertificate(raw))
		return certs.KeyPair{Cert: certs.EncodeCertPEM(signed), Key: must.Get(keyutil.MarshalPrivateKeyToPEM(key))}
	})
}

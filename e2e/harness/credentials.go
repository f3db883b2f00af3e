package harness

import (
	"context"
	"fmt"
	"os"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/e2e/fleet"
)

// tokenLife bounds the use of a fleet that runs on, because nothing renews its tokens.
const tokenLife = 30 * 24 * time.Hour

// accountConfig is for acting as a service account that exists, by a token of the TokenRequest API,
// straight at the API server.
func accountConfig(ctx context.Context, c client.Client, s *fleet.Server, key client.ObjectKey) (*rest.Config, error) {
	account := &corev1.ServiceAccount{}
	account.Namespace, account.Name = key.Namespace, key.Name
	request := &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(tokenLife.Seconds()))},
	}
	if err := c.SubResource("token").Create(ctx, account, request); err != nil {
		return nil, fmt.Errorf("token for service account %s of %s: %w", key, s.Name(), err)
	}
	config := rest.AnonymousClientConfig(s.AdminConfig())
	config.BearerToken = request.Status.Token
	return config, nil
}

// writeKubeconfig writes a configuration into a file for a process of its own.
func writeKubeconfig(file, name string, config *rest.Config) error {
	content, err := fleet.Kubeconfig(name, config)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return fmt.Errorf("kubeconfig of %s: %w", name, err)
	}
	return nil
}

package hub

import (
	"context"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/e2e/proxy"
)

// The API server of the management cluster may be gone behind a load balancer, and the connections to it stay open.
func TestTheHubGoesOnInTimeAfterItsConnectionsDiedSilently(t *testing.T) {
	for name, client := range map[string]func(*testing.T, *rest.Config) (get func(context.Context) error){
		"the election": func(t *testing.T, cfg *rest.Config) func(context.Context) error {
			lock := musttest.Get(electionLock(cfg, "hub", "us"))(t)
			return func(ctx context.Context) error {
				_, _, err := lock.Get(ctx)
				return err
			}
		},
		"the manager's clients": func(t *testing.T, cfg *rest.Config) func(context.Context) error {
			mgr := musttest.Get(
				NewManager(t.Context(), cfg, Options{Namespace: "hub", MetricsAddress: "0", ProbeAddress: "0"}),
			)(t)
			local := mgr.GetLocalManager()
			cs := musttest.Get(kubernetes.NewForConfigAndClient(local.GetConfig(), local.GetHTTPClient()))(t)
			return func(ctx context.Context) error {
				_, err := cs.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
				return err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, p := behindProxy(t)
			get := client(t, cfg)
			musttest.Do(t, get(t.Context()))
			p.Strand()
			ctx, cancel := context.WithTimeout(t.Context(), renewDeadline)
			defer cancel()
			for began := time.Now(); ; <-time.After(50 * time.Millisecond) {
				err := get(ctx)
				if err == nil {
					return
				}
				if ctx.Err() != nil {
					t.Fatalf("not reached for %v: %v", time.Since(began), err)
				}
			}
		})
	}
}

func TestServerOfAConfigurationWithoutAScheme(t *testing.T) {
	cfg, _ := behindProxy(t)
	cfg.Host = strings.TrimPrefix(cfg.Host, "https://")
	lock := musttest.Get(electionLock(cfg, "hub", "us"))(t)
	if _, _, err := lock.Get(t.Context()); err != nil {
		t.Error(err)
	}
}

// behindProxy returns the configuration of an API server that has the Lease of the election and kube-system, and the
// proxy in front of it.
func behindProxy(t *testing.T) (*rest.Config, *proxy.Proxy) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, map[string]string{
			"/api/v1/namespaces/kube-system": `{"apiVersion":"v1","kind":"Namespace",` +
				`"metadata":{"name":"kube-system","uid":"uid"}}`,
			"/apis/coordination.k8s.io/v1/namespaces/hub/leases/leasecast-hub": `{"apiVersion":"coordination.k8s.io/v1",` +
				`"kind":"Lease","metadata":{"name":"leasecast-hub"},"spec":{"holderIdentity":"us"}}`,
			"/api":  `{"kind":"APIVersions","versions":["v1"]}`,
			"/apis": `{"apiVersion":"v1","kind":"APIGroupList"}`,
			"/apis/leasecast.dev/v1alpha1": `{"apiVersion":"v1","kind":"APIResourceList",` +
				`"groupVersion":"leasecast.dev/v1alpha1",` +
				`"resources":[{"name":"leadershippolicies","namespaced":true,"kind":"LeadershipPolicy"},` +
				`{"name":"namespaceleaders","namespaced":true,"kind":"NamespaceLeader"},` +
				`{"name":"leaderresourcesets","namespaced":true,"kind":"LeaderResourceSet"}]}`,
			"/apis/cluster.x-k8s.io/v1beta2": `{"apiVersion":"v1","kind":"APIResourceList",` +
				`"groupVersion":"cluster.x-k8s.io/v1beta2",` +
				`"resources":[{"name":"clusters","namespaced":true,"kind":"Cluster"}]}`,
		}[r.URL.Path])
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	p := musttest.Get(proxy.New(s.Listener.Addr().String()))(t)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return &rest.Config{Host: "https://" + p.Addr(), TLSClientConfig: rest.TLSClientConfig{CAData: ca}}, p
}

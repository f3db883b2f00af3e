package fleet

import (
	"context"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// timeLimited is for requests that are not expected to be answered.
func timeLimited(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Timeout = time.Second
	return config
}

// getNamespace asks over a connection of its own.
func getNamespace(t *testing.T, config *rest.Config, name string) (*corev1.Namespace, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return newClient(t, config).CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
}

// newClient makes a client that shares no connection with others and closes its own.
func newClient(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Proxy = http.ProxyFromEnvironment // a function makes client-go's transport cache miss
	transport, err := rest.HTTPClientFor(config)
	must(t, err)
	t.Cleanup(transport.CloseIdleConnections)
	c, err := kubernetes.NewForConfigAndClient(config, transport)
	must(t, err)
	return c
}

func makeNamespace(t *testing.T, c *kubernetes.Clientset, name string) {
	t.Helper()
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := c.CoreV1().Namespaces().Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func await(t *testing.T, what string, met func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			last = met(ctx)
			return last == nil, nil
		})
	if err != nil {
		t.Fatalf("waiting until %s: %v (last: %v)", what, err, last)
	}
}

// must fails the test at once on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

package harness

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Scrape returns the metrics of a replica, as a Prometheus with a token of [Drill.Scraper] reads them.
func Scrape(ctx context.Context, address, token string) (string, error) {
	status, body, err := Ask(ctx, http.MethodGet, "https://"+address+"/metrics", token, "")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("metrics of %s: %d: %s", address, status, body)
	}
	return body, err
}

// Ask sends a request to a replica, with a token if there is one.
func Ask(ctx context.Context, method, url, token, sent string) (status int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(sent))
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // its certificate is signed by nobody
		DisableKeepAlives: true,
	}}
	answer, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = answer.Body.Close() }()
	content, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(content), err
}

// Scraper returns a token of an account that may read the metrics, and nothing else.
func (d *Drill) Scraper(ctx context.Context) (token string, err error) {
	meta := metav1.ObjectMeta{Namespace: FleetNamespace, Name: "scraper"}
	for _, o := range []client.Object{&corev1.ServiceAccount{ObjectMeta: meta}, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: meta.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "leasecast-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: meta.Namespace, Name: meta.Name}},
	}} {
		if err := d.Hub.Create(ctx, o); client.IgnoreAlreadyExists(err) != nil {
			return "", err
		}
	}
	config, err := d.Fleet.Hub().TokenConfig(ctx, meta.Namespace, meta.Name)
	if err != nil {
		return "", err
	}
	return config.BearerToken, nil
}

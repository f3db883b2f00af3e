// Package cases asks the hub what its decisions rest on. With that, the plugin foresees how long changes take.
package cases

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/hub"
	"github.com/leasecast/leasecast/hub/decide"
)

const (
	// timeout bounds how long the hub is asked; forwardTimeout is the part of it for the way there.
	timeout, forwardTimeout = 45 * time.Second, 10 * time.Second
	// maxCase bounds what is read of one namespace, in bytes.
	maxCase = 1 << 20
	// metricsPort is the port of the hub's metrics in config/manager.
	metricsPort = 8443
)

// Hub is the hub that is asked.
type Hub struct {
	// Config leads to the management cluster's API server.
	Config *rest.Config
	// Namespace is the one that the hub runs in, and Holder the identity of the replica that decides.
	Namespace, Holder string
	// Address is where its metrics port can be reached on this machine, as by --hub-address: a loopback IP address with a
	// port. Empty: through the API server.
	Address string
	// Version is the plugin's. A hub of another version is an error.
	Version string
}

// Read returns what the hub's decisions on the namespaces of a fleet rest on, by namespace. It takes 45 s at most.
func Read(ctx context.Context, h Hub, fleet string) (map[string]decide.Case, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	api, err := kubernetes.NewForConfig(h.Config)
	if err != nil {
		return nil, err
	}
	review, err := api.CoreV1().ServiceAccounts(h.Namespace).CreateToken(ctx, hub.CasesAccount,
		&authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](600)},
		}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("token of the account %s: %w", hub.CasesAccount, err)
	}
	address, stop, err := h.reach(ctx, api)
	if err != nil {
		return nil, err
	}
	defer stop()
	return h.ask(ctx, address, fleet, review.Status.Token)
}

// reach returns a local address that leads to the metrics port of the replica that decides.
func (h Hub) reach(ctx context.Context, api kubernetes.Interface) (address string, stop func(), err error) {
	if h.Address != "" {
		host, _, err := net.SplitHostPort(h.Address)
		if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
			return "", nil, fmt.Errorf("--hub-address=%q: give an address of this machine, such as 127.0.0.1:8443 where "+
				"kubectl port-forward listens: its certificate is not checked", h.Address)
		}
		return h.Address, func() {}, nil
	}
	pod, _, _ := strings.Cut(h.Holder, "_") // the identity begins with the host name
	to := api.CoreV1().RESTClient().Post().Resource("pods").Namespace(h.Namespace).Name(pod).SubResource("portforward")
	return forward(ctx, h.Config, to.URL())
}

// forward has the API server forward a local port to the hub's.
func forward(ctx context.Context, config *rest.Config, to *url.URL) (address string, stop func(), err error) {
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return "", nil, err
	}
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport, Timeout: forwardTimeout}, http.MethodPost, to)
	ends, ready, failed := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	ports := []string{fmt.Sprintf("0:%d", metricsPort)}
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, ports, ends, ready, io.Discard, io.Discard)
	if err != nil {
		return "", nil, err
	}
	go func() { failed <- forwarder.ForwardPorts() }()
	stop = func() { close(ends) }
	select {
	case <-ready:
	case err = <-failed:
	case <-ctx.Done():
		err = ctx.Err()
	}
	var local []portforward.ForwardedPort
	if err == nil {
		local, err = forwarder.GetPorts()
	}
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("port-forward to the hub: %w", err)
	}
	return fmt.Sprintf("127.0.0.1:%d", local[0].Local), stop, nil
}

// ask reads the cases of a fleet from the hub at an address of this machine.
func (h Hub) ask(ctx context.Context, address, fleet, token string) (map[string]decide.Case, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"https://"+address+hub.CasesPath+"?namespace="+url.QueryEscape(fleet), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	client := http.Client{Transport: &http.Transport{
		//nolint:gosec // the hub signs its certificate itself, and the API server's tunnel leads to nothing else
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	defer client.CloseIdleConnections()
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 512))
		return nil, fmt.Errorf("the hub answers %s: %s", answer.Status, strings.TrimSpace(string(text)))
	}
	if is := answer.Header.Get(hub.VersionHeader); is != h.Version {
		return nil, fmt.Errorf("the hub is %q, and this plugin is %q: install the plugin of the hub's release", is, h.Version)
	}
	cases, lines := map[string]decide.Case{}, bufio.NewScanner(answer.Body)
	lines.Buffer(nil, maxCase)
	for lines.Scan() {
		var is decide.Case
		if err := json.Unmarshal(lines.Bytes(), &is); err != nil || is.Policy == nil {
			return nil, errors.Join(errors.New("the hub's answer cannot be read"), err)
		}
		cases[is.Namespace] = is
	}
	return cases, lines.Err()
}

package main

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
	// casesTimeout bounds how long the hub is asked; forwardTimeout is the part of it for the way there.
	casesTimeout, forwardTimeout = 45 * time.Second, 10 * time.Second
	// maxCase bounds what is read of one namespace, in bytes.
	maxCase = 1 << 20
	// metricsPort is the port of the hub's metrics in config/manager.
	metricsPort = 8443
)

// addCases asks the hub what its decisions rest on. Where that fails, times are not known.
func (p *plugin) addCases(ctx context.Context, s *snapshot) error {
	ctx, cancel := context.WithTimeout(ctx, casesTimeout)
	defer cancel()
	config, err := p.flags.ToRESTConfig()
	if err != nil {
		return err
	}
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	review, err := api.CoreV1().ServiceAccounts(p.hubNamespace).CreateToken(ctx, hub.CasesAccount,
		&authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](600)},
		}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("token of the account %s: %w", hub.CasesAccount, err)
	}
	address, stop, err := p.reach(ctx, config, api, s.hub.holder)
	if err != nil {
		return err
	}
	defer stop()
	s.cases, err = readCases(ctx, address, s.fleet, review.Status.Token)
	return err
}

// reach returns a local address that leads to the metrics port of the replica that decides.
func (p *plugin) reach(
	ctx context.Context, config *rest.Config, api kubernetes.Interface, holder string,
) (address string, stop func(), err error) {
	if p.hubAddress != "" {
		host, _, err := net.SplitHostPort(p.hubAddress)
		if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
			return "", nil, fmt.Errorf("--hub-address=%q: give an address of this machine, such as 127.0.0.1:8443 where "+
				"kubectl port-forward listens: its certificate is not checked", p.hubAddress)
		}
		return p.hubAddress, func() {}, nil
	}
	pod, _, _ := strings.Cut(holder, "_") // the identity begins with the host name
	to := api.CoreV1().RESTClient().Post().Resource("pods").Namespace(p.hubNamespace).Name(pod).SubResource("portforward")
	return forward(ctx, config, to.URL())
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

// readCases reads the cases of a fleet from the hub at an address of this machine.
func readCases(ctx context.Context, address, fleet, token string) (map[string]decide.Case, error) {
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
	if is := answer.Header.Get(hub.VersionHeader); is != version {
		return nil, fmt.Errorf("the hub is %q, and this plugin is %q: install the plugin of the hub's release", is, version)
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

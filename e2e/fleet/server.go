package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/e2e/proxy"
)

// probeTimeout bounds one question to a server that is starting.
const probeTimeout = 2 * time.Second

// Server is one control plane of a fleet. Its methods may be called from any goroutine, but those of
// one server that end or start processes, and Snapshot, only one after the other.
type Server struct {
	name  string
	dir   string
	ca    *authority
	port  *port
	proxy *proxy.Proxy
	admin *rest.Config
	audit string   // the audit policy; empty: there is no audit log
	flags []string // of the API server, besides what it needs

	etcd       *program
	apiserver  *program
	controller *program
}

// newServer prepares a server under dir; nothing runs yet but its proxy.
func newServer(name, dir, assets string, nest *nest, o Options) (s *Server, err error) {
	s = &Server{name: name, dir: filepath.Join(dir, name), audit: o.auditPolicy(), flags: o.APIServerFlags}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("prepare %s: %w", name, err), s.release())
		}
	}()
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return nil, err
	}
	if s.ca, err = newAuthority(name); err != nil {
		return nil, err
	}
	if s.port, err = reservePort(false); err != nil {
		return nil, err
	}
	if s.proxy, err = proxy.New(s.port.addr()); err != nil {
		return nil, err
	}
	if s.admin, err = s.UserConfig("leasecast-fleet-admin", "system:masters"); err != nil {
		return nil, err
	}
	if err := s.writeFiles(); err != nil {
		return nil, err
	}
	runs := func(name string, args ...string) *program {
		return &program{
			server: s.name, path: filepath.Join(assets, name), args: args,
			log: filepath.Join(s.dir, name+".log"), nest: nest,
		}
	}
	s.etcd = runs("etcd", s.etcdArgs()...)
	s.apiserver = runs("kube-apiserver", s.apiserverArgs()...)
	s.controller = runs("kube-controller-manager", s.controllerArgs()...)
	return s, nil
}

// release gives back what is not a process.
func (s *Server) release() error {
	var err error
	if s.proxy != nil {
		err = s.proxy.Close()
	}
	if s.port != nil {
		s.port.free()
	}
	return err
}

// start brings the server up and returns when it is ready for use.
func (s *Server) start(ctx context.Context) error {
	if err := s.startEtcd(ctx); err != nil {
		return err
	}
	if err := s.startAPIServer(ctx); err != nil {
		return err
	}
	if err := s.controller.start(); err != nil {
		return err
	}
	return s.controller.await(ctx, "its controllers work", s.controllersWork)
}

func (s *Server) startEtcd(ctx context.Context) error {
	if err := s.etcd.start(); err != nil {
		return err
	}
	return s.etcd.await(ctx, "it is healthy", s.etcdHealthy)
}

func (s *Server) startAPIServer(ctx context.Context) error {
	if err := s.apiserver.start(); err != nil {
		return err
	}
	return s.apiserver.await(ctx, "it is ready", s.apiReady)
}

// Name is the name that the server was given in [Options], or "hub".
func (s *Server) Name() string { return s.name }

// Proxy is the network in front of the API server: between the hub and this member or, for
// the hub's server, between the hub process and its own API server.
func (s *Server) Proxy() *proxy.Proxy { return s.proxy }

// PIDs are process identifiers; 0 means that the process is not running.
type PIDs struct{ Etcd, APIServer, ControllerManager int }

// PIDs returns the server's processes, for measuring them.
func (s *Server) PIDs() PIDs {
	return PIDs{Etcd: s.etcd.pid(), APIServer: s.apiserver.pid(), ControllerManager: s.controller.pid()}
}

// Pause stops the API server (SIGSTOP) and returns when it has stopped:
// connections stay open, new ones are accepted by the kernel, nothing is answered.
func (s *Server) Pause() error { return s.apiserver.pause() }

// Resume lets a paused API server go on; it answers what has piled up. Its clock has not stopped.
func (s *Server) Resume() error { return s.apiserver.resume() }

// PauseEtcd stops etcd: the API server still answers what its watch cache knows, and writes hang.
func (s *Server) PauseEtcd() error { return s.etcd.pause() }

// ResumeEtcd lets a paused etcd go on.
func (s *Server) ResumeEtcd() error { return s.etcd.resume() }

// Kill ends the API server at once, as a crash does, and returns when it is gone. Connections are
// reset and new ones refused until Restart. What it has acknowledged is in etcd, which goes on.
func (s *Server) Kill() error { return s.apiserver.kill() }

// Restart starts the API server again, on the same port with the same data and certificates, and
// returns when it is ready; one that runs is killed first. ctx, and a limit of two minutes, bound the wait.
func (s *Server) Restart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := s.apiserver.kill(); err != nil {
		return err
	}
	return s.startAPIServer(ctx)
}

func (s *Server) etcdHealthy(ctx context.Context) error {
	client := http.Client{
		Timeout: probeTimeout,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", s.etcdSocket())
			},
		},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://etcd/health", nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}

// apiReady also waits for kube-system, whose UID tells members apart and which is made after readiness.
func (s *Server) apiReady(ctx context.Context) error {
	client, done, err := s.probe()
	if err != nil {
		return err
	}
	defer done()
	if err := client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return err
	}
	_, err = client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	return err
}

// controllersWork waits for what only the controllers make.
func (s *Server) controllersWork(ctx context.Context) error {
	client, done, err := s.probe()
	if err != nil {
		return err
	}
	defer done()
	_, err = client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
	if err != nil {
		return err
	}
	edit, err := client.RbacV1().ClusterRoles().Get(ctx, "edit", metav1.GetOptions{})
	if err == nil && len(edit.Rules) == 0 {
		return errors.New(`the ClusterRole "edit" is empty yet`)
	}
	return err
}

// probe makes a client for one question, which leaves no connection behind.
func (s *Server) probe() (_ *kubernetes.Clientset, done func(), err error) {
	config := s.AdminConfig()
	config.Timeout = probeTimeout
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("make a client of %s: %w", s.name, err)
	}
	client, err := kubernetes.NewForConfigAndClient(config, transport)
	if err != nil {
		return nil, nil, fmt.Errorf("make a client of %s: %w", s.name, err)
	}
	return client, transport.CloseIdleConnections, nil
}

func (s *Server) file(name string) string { return filepath.Join(s.dir, name) }

func (s *Server) etcdSocket() string { return s.file("etcd.sock") }

func (s *Server) etcdData() string { return s.file("etcd") }

// writeFiles writes the keys that the programs read.
func (s *Server) writeFiles() error {
	serving, err := s.ca.serving()
	if err != nil {
		return err
	}
	_, tokenKey, err := newKey()
	if err != nil {
		return fmt.Errorf("make the key for tokens: %w", err)
	}
	kubeconfig, err := s.Kubeconfig()
	if err != nil {
		return err
	}
	if s.audit != "" {
		if err := os.WriteFile(s.file(auditPolicy), []byte(s.audit), 0o600); err != nil {
			return err
		}
	}
	for name, content := range map[string][]byte{
		"ca.crt":        s.ca.certPEM,
		"apiserver.crt": serving.cert,
		"apiserver.key": serving.key,
		"tokens.key":    tokenKey,
		"kubeconfig":    kubeconfig,
	} {
		if err := os.WriteFile(s.file(name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) etcdArgs() []string {
	return []string{
		"--data-dir=" + s.etcdData(),
		"--listen-client-urls=unix://" + s.etcdSocket(),
		"--advertise-client-urls=http://127.0.0.1:2379", // required, and asked for by nobody
		"--listen-peer-urls=http://127.0.0.1:0",         // it has no peers
		"--unsafe-no-fsync=true",
		"--log-level=warn",
	}
}

func (s *Server) apiserverArgs() []string {
	args := []string{
		"--etcd-servers=unix://" + s.etcdSocket(),
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(s.port.number),
		"--permit-port-sharing=true", // with our reservation of it
		"--cert-dir=" + s.dir,
		"--tls-cert-file=" + s.file("apiserver.crt"),
		"--tls-private-key-file=" + s.file("apiserver.key"),
		"--client-ca-file=" + s.file("ca.crt"),
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + s.file("tokens.key"),
		"--service-account-signing-key-file=" + s.file("tokens.key"),
		"--service-cluster-ip-range=10.0.0.0/24",
		"--allow-privileged=true",
		"--endpoint-reconciler-type=none", // nobody looks for the API server inside the cluster
		"--profiling=false",
	}
	if s.audit != "" {
		args = append(args, "--audit-policy-file="+s.file(auditPolicy), "--audit-log-path="+s.file(auditLog),
			"--audit-log-maxsize=0") // one file, whatever its size
	}
	return append(args, s.flags...)
}

func (s *Server) controllerArgs() []string {
	return []string{
		"--kubeconfig=" + s.file("kubeconfig"),
		"--controllers=namespace-controller,serviceaccount-controller,clusterrole-aggregation-controller",
		"--leader-elect=false",
		"--secure-port=0",
		"--profiling=false",
	}
}

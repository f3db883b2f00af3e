package fleet

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/certs"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/process"
	"github.com/leasecast/leasecast/e2e/proxy"
)

// Server is one control plane of a fleet. Its methods may be called from any goroutine. Those of one server that end or
// start processes, and Snapshot, must not run at the same time.
type Server struct {
	name    string
	dir     string
	ca      *authority
	address string
	proxy   *proxy.Proxy
	admin   *rest.Config
	client  client.Client // the administrator's, with a timeout

	etcd, apiserver, controller *program
}

// newServer prepares a server under dir. Nothing runs yet but its proxy.
func newServer(name, dir, assets string, o Options) *Server {
	port := must.Get(ReservePort())
	s := &Server{name: name, dir: filepath.Join(dir, name), ca: must.Get(newAuthority(name + "-ca")),
		address: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	s.admin = must.Get(s.UserConfig("leasecast-fleet-admin", "system:masters"))
	s.client = must.Get(s.newClient())
	s.writeFiles()
	program := func(name string, args ...string) *program {
		return &program{name: name + " of " + s.name, path: filepath.Join(assets, name), args: args,
			log: s.file(name + ".log")}
	}
	s.etcd = program("etcd", s.etcdArgs()...)
	s.apiserver = program("kube-apiserver", s.apiserverArgs(port, o)...)
	s.controller = program("kube-controller-manager", s.controllerArgs()...)
	s.proxy = must.Get(proxy.New(s.address))
	return s
}

func (s *Server) newClient() (client.Client, error) {
	scheme := runtime.NewScheme()
	utilruntime.Must(errors.Join(clientgoscheme.AddToScheme(scheme), clusterv1.AddToScheme(scheme)))
	config := s.AdminConfig()
	config.Timeout = requestTimeout
	return client.New(config, client.Options{Scheme: scheme})
}

// start brings the server up and returns when it is ready for use.
func (s *Server) start(ctx context.Context) error {
	return must.Try(func() {
		must.Do(s.startEtcd(ctx))
		must.Do(s.startAPIServer(ctx))
		must.Do(s.controller.start(ctx, "its controllers work", s.controllersWork))
	})
}

func (s *Server) startEtcd(ctx context.Context) error {
	return s.etcd.start(ctx, "it listens", func(context.Context) {
		must.Do(must.Get(net.Dial("unix", s.file("etcd.sock"))).Close())
	})
}

func (s *Server) startAPIServer(ctx context.Context) error {
	return s.apiserver.start(ctx, "it is ready", s.apiReady)
}

// apiReady also waits for kube-system, which is created after the API server is ready. Its UID identifies members.
func (s *Server) apiReady(ctx context.Context) {
	api := kubernetes.NewForConfigOrDie(s.admin).RESTClient()
	must.Do(api.Get().AbsPath("/readyz").Do(ctx).Error())
	must.Do(s.client.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &corev1.Namespace{}))
}

// controllersWork waits for what only the controllers create.
func (s *Server) controllersWork(ctx context.Context) {
	account := client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "default"}
	must.Do(s.client.Get(ctx, account, &corev1.ServiceAccount{}))
	edit := &rbacv1.ClusterRole{}
	must.Do(s.client.Get(ctx, client.ObjectKey{Name: "edit"}, edit))
	must.FailIf(len(edit.Rules) == 0, `the ClusterRole "edit" is empty yet`)
}

// close kills the server's processes and prevents further starts.
func (s *Server) close() error {
	return errors.Join(s.etcd.close(), s.apiserver.close(), s.controller.close(), s.proxy.Close())
}

// Name is the name that the server was given in [Options], or "hub".
func (s *Server) Name() string { return s.name }

// Proxy is the network in front of the API server: between the hub and this member or, for the hub's server, between
// the hub process and its own API server.
func (s *Server) Proxy() *proxy.Proxy { return s.proxy }

// PIDs are process identifiers. 0 means that the process does not run.
type PIDs struct{ Etcd, APIServer, ControllerManager int }

// PIDs returns the server's processes, for measuring them.
func (s *Server) PIDs() PIDs {
	return PIDs{s.etcd.pid(), s.apiserver.pid(), s.controller.pid()}
}

// Pause stops the API server where it is (SIGSTOP): it still accepts connections, and never answers.
func (s *Server) Pause() error { return s.apiserver.last().Pause() }

// Resume continues a paused API server. It answers what has piled up. Its clock has not stopped.
func (s *Server) Resume() error { return s.apiserver.last().Resume() }

// PauseEtcd stops etcd. The API server still answers from its watch cache, and writes hang.
func (s *Server) PauseEtcd() error { return s.etcd.last().Pause() }

// ResumeEtcd continues a paused etcd.
func (s *Server) ResumeEtcd() error { return s.etcd.last().Resume() }

// Kill ends the API server at once, as a crash does, and returns when it is gone. Connections are reset and refused
// until Restart. etcd keeps what the API server has acknowledged.
func (s *Server) Kill() error { return s.apiserver.last().Kill() }

// KillEtcd ends etcd at once, as a crash does, and returns when it is gone. The API server answers from its watch cache
// until RestartEtcd.
func (s *Server) KillEtcd() error { return s.etcd.last().Kill() }

// Restart kills the API server if it runs, starts it again with the same port, data and certificates, and returns when
// it is ready. ctx and a limit of two minutes bound the wait.
func (s *Server) Restart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return errors.Join(s.Kill(), s.startAPIServer(ctx))
}

// RestartEtcd kills etcd if it runs, starts it again with its data, and returns when it listens. The API server
// reconnects soon after.
func (s *Server) RestartEtcd(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return errors.Join(s.KillEtcd(), s.startEtcd(ctx))
}

func (s *Server) file(name string) string { return filepath.Join(s.dir, name) }

func (s *Server) etcdData() string { return s.file("etcd") }

// writeFiles writes what the programs read.
func (s *Server) writeFiles() {
	serving := must.Get(s.ca.sign(certs.Config{
		CommonName: "kube-apiserver", Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		AltNames: certs.AltNames{DNSNames: []string{"localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}},
	}, time.Now().Add(certs.DefaultCertDuration)))
	must.Do(os.Mkdir(s.dir, 0o700))
	for name, content := range map[string][]byte{
		"ca.crt": s.ca.pem(), "apiserver.crt": serving.Cert, "apiserver.key": serving.Key, auditPolicy: []byte(auditAll),
	} {
		must.Do(os.WriteFile(s.file(name), content, 0o600))
	}
	must.Do(WriteKubeconfig(s.file("kubeconfig"), s.name, s.admin))
}

func (s *Server) etcdArgs() []string {
	return []string{
		"--data-dir=" + s.etcdData(),
		"--listen-client-urls=unix://" + s.file("etcd.sock"),
		"--advertise-client-urls=http://127.0.0.1:2379", // required, but not used
		"--listen-peer-urls=http://127.0.0.1:0",         // it has no peers
		"--unsafe-no-fsync=true",
		"--log-level=warn",
	}
}

func (s *Server) apiserverArgs(port int, o Options) []string {
	args := []string{
		"--etcd-servers=unix://" + s.file("etcd.sock"),
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(port),
		"--cert-dir=" + s.dir,
		"--tls-cert-file=" + s.file("apiserver.crt"),
		"--tls-private-key-file=" + s.file("apiserver.key"),
		"--client-ca-file=" + s.file("ca.crt"),
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + s.file("apiserver.key"),
		"--service-account-signing-key-file=" + s.file("apiserver.key"),
		"--service-cluster-ip-range=10.0.0.0/24",
		"--allow-privileged=true",
		"--endpoint-reconciler-type=none", // no Pod looks for the API server inside the cluster
		"--profiling=false",
	}
	if o.Audit {
		args = append(args, "--audit-policy-file="+s.file(auditPolicy), "--audit-log-path="+s.file(auditLog),
			"--audit-log-maxsize=0") // one file, whatever its size
	}
	return append(args, o.APIServerFlags...)
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

// Snapshot is what the etcd of one server held at an instant. It lives as long as the fleet, or until Discard.
type Snapshot struct{ dir string }

// Discard removes a snapshot, which cannot be restored anymore.
func (b Snapshot) Discard() error { return os.RemoveAll(b.dir) }

// Snapshot copies etcd's data. It pauses etcd, which must run, while its files are copied. So the copy is what a crash
// leaves, with all that etcd has acknowledged. The API server does not notice.
func (s *Server) Snapshot(context.Context) (Snapshot, error) {
	return must.Return(func() Snapshot {
		dir := must.Get(os.MkdirTemp(s.dir, "snapshot-"))
		must.Do(s.PauseEtcd())
		must.Do(errors.Join(os.CopyFS(dir, os.DirFS(s.etcdData())), s.ResumeEtcd()))
		return Snapshot{dir}
	})
}

// Restore kills all processes of the server, replaces etcd's data by a snapshot of the same server, starts everything
// again, and returns when the server is ready. Later writes are lost, and the server gives their resourceVersions to
// other objects. ctx and a limit of two minutes bound the wait.
func (s *Server) Restore(ctx context.Context, b Snapshot) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return must.Try(func() {
		must.Do(errors.Join(s.apiserver.last().Kill(), s.controller.last().Kill(), s.etcd.last().Kill(),
			os.RemoveAll(s.etcdData()), os.CopyFS(s.etcdData(), os.DirFS(b.dir))), "restore %s", s.name)
		must.Do(s.start(ctx))
	})
}

// probeTimeout bounds one request to a server that is starting.
const probeTimeout = 2 * time.Second

// program is one program of a server. Its methods may be called from any goroutine.
type program struct {
	name, path, log string
	args            []string

	mu     sync.Mutex
	run    *process.Process // the last one; nil before the first start
	closed bool             // the fleet has been stopped
}

// start runs the program and returns when ready does not fail. It fails when the program or ctx ends before.
func (p *program) start(ctx context.Context, what string, ready func(context.Context)) error {
	run, err := p.launch()
	if err != nil {
		return err
	}
	var last error
	err = wait.PollUntilContextCancel(ctx, 25*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		if last = must.Try(func() { ready(ctx) }); last != nil && !run.Running() {
			return false, process.ErrEnded
		}
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%s: waiting until %s: %w (last answer: %w)%s", p.name, what, err, last, run.Tail())
	}
	return nil
}

func (p *program) launch() (*process.Process, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, fmt.Errorf("start %s: the fleet has been stopped", p.name)
	}
	run, err := process.Start(p.name, p.log, p.path, p.args...)
	if err == nil {
		p.run = run
	}
	return run, err
}

// last returns the last run of the program. It was started.
func (p *program) last() *process.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run
}

// pid is 0 while the program does not run.
func (p *program) pid() int {
	if run := p.last(); run.Running() {
		return run.PID()
	}
	return 0
}

// close kills the program and prevents further starts.
func (p *program) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.run == nil {
		return nil
	}
	return p.run.Kill()
}

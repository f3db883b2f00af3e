package harness

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/process"
)

// capiAssets is the environment variable that names the folder of capi-manager.
const capiAssets = "CAPI_ASSETS"

// inPod runs a program that looks for the namespace of its Pod, in a mount namespace of its own that has the file. The
// first argument is that namespace, and the others are the program and its arguments.
const inPod = `of=/run/secrets/kubernetes.io/serviceaccount && mount -t tmpfs tmpfs /run && mkdir -p "$of" &&
printf %s "$0" > "$of/namespace" && exec "$@"`

// CAPI is where the real core manager of Cluster API runs in processes, one at a time.
type CAPI struct {
	// CA is the certificate of its webhooks, for 127.0.0.1.
	CA []byte
	// Port is that of its webhooks.
	Port int

	name, program, dir string
}

// NewCAPI prepares the manager in a folder, which gets its log. Config is its access to the cluster.
func NewCAPI(name, dir string, config *rest.Config) (*CAPI, error) {
	assets := os.Getenv(capiAssets)
	if assets == "" {
		return nil, fmt.Errorf("%s is not set: it must name the folder of capi-manager, which `make capi` builds", capiAssets)
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return nil, err
	}
	c := &CAPI{CA: certificate, name: name, program: filepath.Join(assets, "capi-manager"), dir: dir}
	if c.Port, err = unusedPort(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	for file, content := range map[string][]byte{"tls.crt": certificate, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
			return nil, err
		}
	}
	return c, fleet.WriteKubeconfig(filepath.Join(dir, "kubeconfig"), name, config)
}

// CAPI prepares the manager for a member.
func (d *Drill) CAPI(member string) (*CAPI, error) {
	name := "capi-" + member
	return NewCAPI(name, filepath.Join(d.dir, name), d.Fleet.Member(member).AdminConfig())
}

// Start starts a process of the manager, which has no election.
func (c *CAPI) Start() (*process.Process, error) {
	return process.Start(c.name, c.log(), c.program, c.args()...)
}

// StartElected starts a process that elects itself in a namespace. The manager has an election in a Pod only, so it
// finds the file that a Pod has. That needs the right to mount, as root or in a user namespace.
func (c *CAPI) StartElected(namespace string, args ...string) (*process.Process, error) {
	unshare := []string{"--mount"}
	if os.Geteuid() != 0 {
		unshare = append(unshare, "--map-root-user")
	}
	unshare = append(unshare, "sh", "-c", inPod, namespace, c.program, "--leader-elect")
	return process.Start(c.name, c.log(), "unshare", append(append(unshare, c.args()...), args...)...)
}

func (c *CAPI) log() string { return filepath.Join(c.dir, "log") }

func (c *CAPI) args() []string {
	return []string{
		"--kubeconfig=" + filepath.Join(c.dir, "kubeconfig"), "--webhook-port=" + strconv.Itoa(c.Port),
		"--webhook-cert-dir=" + c.dir,
		"--health-addr=0", "--diagnostics-address=0",
	}
}

// unusedPort finds a port below those that the kernel gives away, so that nobody is given it by chance.
func unusedPort() (int, error) {
	for range 100 {
		port := 20000 + rand.IntN(10000)
		l, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no port is free")
}

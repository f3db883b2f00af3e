package harness

import (
	"errors"
	"fmt"
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

// CAPI is where the real core manager of Cluster API runs in processes, one at a time.
type CAPI struct {
	// CA is the certificate of its webhooks, for 127.0.0.1.
	CA []byte
	// Port is its webhooks' port.
	Port int

	name, program, dir string
}

// NewCAPI prepares the manager in a folder, which gets its log. config is its access to the cluster.
func NewCAPI(name, dir string, config *rest.Config) (*CAPI, error) {
	program := filepath.Join(os.Getenv(capiAssets), "capi-manager")
	if _, err := os.Stat(program); err != nil {
		return nil, fmt.Errorf("%s must name the folder of capi-manager: run `make capi`: %w", capiAssets, err)
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	port, portErr := fleet.ReservePort()
	return &CAPI{CA: certificate, Port: port, name: name, program: program, dir: dir}, errors.Join(
		err, portErr,
		os.MkdirAll(dir, 0o700),
		os.WriteFile(filepath.Join(dir, "tls.crt"), certificate, 0o600),
		os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600),
		fleet.WriteKubeconfig(filepath.Join(dir, "kubeconfig"), name, config))
}

// Start starts a process of the manager, which has no election.
func (c *CAPI) Start() (*process.Process, error) {
	return process.Start(c.name, filepath.Join(c.dir, "log"), c.program,
		"--kubeconfig="+filepath.Join(c.dir, "kubeconfig"), "--webhook-port="+strconv.Itoa(c.Port),
		"--webhook-cert-dir="+c.dir, "--health-addr=0", "--diagnostics-address=0")
}

// StartControllers is [StartControllers] in a member.
func (d *Drill) StartControllers(member, controllers string, args ...string) (*process.Process, error) {
	return StartControllers(d.Fleet.Member(member), d.dir, controllers, args...)
}

// StartControllers runs one more kube-controller-manager on a server, with these of its controllers. They act with the
// accounts that they have in any cluster. dir gets its log. The caller stops it.
func StartControllers(s *fleet.Server, dir, controllers string, args ...string) (*process.Process, error) {
	name := "controllers-" + s.Name()
	kubeconfig := filepath.Join(dir, name+".kubeconfig")
	if err := fleet.WriteKubeconfig(kubeconfig, name, s.AdminConfig()); err != nil {
		return nil, err
	}
	args = append([]string{
		"--kubeconfig=" + kubeconfig, "--controllers=" + controllers, "--use-service-account-credentials",
		"--secure-port=0", "--profiling=false",
	}, args...)
	return process.Start(name, filepath.Join(dir, name+".log"),
		filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kube-controller-manager"), args...)
}

package harness

import (
	"os"
	"path/filepath"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/process"
)

// StartControllers runs one more kube-controller-manager in a member, with these of its controllers. They act with the
// accounts that they have in any cluster. The caller stops it.
func (d *Drill) StartControllers(member, controllers string, args ...string) (*process.Process, error) {
	name := "controllers-" + member
	kubeconfig := filepath.Join(d.dir, name+".kubeconfig")
	if err := fleet.WriteKubeconfig(kubeconfig, name, d.Fleet.Member(member).AdminConfig()); err != nil {
		return nil, err
	}
	args = append([]string{
		"--kubeconfig=" + kubeconfig, "--controllers=" + controllers, "--use-service-account-credentials",
		"--secure-port=0", "--profiling=false",
	}, args...)
	return process.Start(name, filepath.Join(d.dir, name+".log"),
		filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kube-controller-manager"), args...)
}

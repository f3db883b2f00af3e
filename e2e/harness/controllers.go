package harness

import (
	"os"
	"path/filepath"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/process"
)

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

package harness

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/must"
)

// KustomizeVariable is the environment variable that names the kustomize program.
const KustomizeVariable = "KUSTOMIZE"

// Programs are the programs that a drill runs beside the control planes.
type Programs struct {
	Hub, Guestbook string
}

// ours is the path of the repository's module.
const ours = "github.com/leasecast/leasecast"

// Build brings the programs up to date and returns where they are. It works within the repository only.
func Build(ctx context.Context) (Programs, error) {
	return must.Return(func() Programs {
		return Programs{
			Hub:       must.Get(Program(ctx, "leasecast-hub", "cmd/leasecast-hub")),
			Guestbook: must.Get(Program(ctx, "guestbook", "e2e/guestbook/cmd")),
		}
	})
}

// Program brings a program in bin/ of the repository up to date, and returns where it is. source is its folder there.
func Program(ctx context.Context, name, source string) (string, error) {
	return must.Return(func() string {
		root := must.Get(fleet.ModuleDir(ctx, ours))
		target := filepath.Join(root, "bin", name)
		// The same settings as in `make build`: what that has compiled is not compiled again, while others are tested.
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", target, "./"+source)
		build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
		run(build)
		return target
	})
}

// Kubectl runs kubectl in a folder of the repository, as the administrator of a server.
func Kubectl(ctx context.Context, s *fleet.Server, folder string, args ...string) error {
	return must.Try(func() {
		dir := must.Get(os.MkdirTemp("", "leasecast-kubectl-"))
		defer func() { _ = os.RemoveAll(dir) }()
		kubeconfig := filepath.Join(dir, "kubeconfig")
		must.Do(fleet.WriteKubeconfig(kubeconfig, s.Name(), s.AdminConfig()))
		kubectl := exec.CommandContext(ctx, filepath.Join(os.Getenv(fleet.AssetsVariable), "kubectl"),
			append([]string{"--kubeconfig=" + kubeconfig, "--cache-dir=" + filepath.Join(dir, "cache")}, args...)...)
		kubectl.Dir = filepath.Join(must.Get(fleet.ModuleDir(ctx, ours)), folder)
		run(kubectl)
	})
}

// Apply applies folders of config/, as the administrator of a server does.
func Apply(ctx context.Context, s *fleet.Server, folders ...string) error {
	return must.Try(func() {
		for _, folder := range folders {
			must.Do(Kubectl(ctx, s, "config", "apply", "--server-side", "--force-conflicts", "-k", folder))
		}
	})
}

func run(cmd *exec.Cmd) {
	if out, err := cmd.CombinedOutput(); err != nil {
		must.Fail("%s: %w: %s", cmd, err, out)
	}
}

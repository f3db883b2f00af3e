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

// Build brings the programs in bin/ of the repository up to date and returns where they are. It works within the
// repository only.
func Build(ctx context.Context) (Programs, error) {
	return must.Return(func() Programs {
		root := must.Get(fleet.ModuleDir(ctx, ours))
		bin := filepath.Join(root, "bin")
		p := Programs{filepath.Join(bin, "leasecast-hub"), filepath.Join(bin, "guestbook")}
		for target, source := range map[string]string{p.Hub: "cmd/leasecast-hub", p.Guestbook: "e2e/guestbook/cmd"} {
			// The same settings as in `make build`, so that its results are up to date.
			build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", target, "./"+source)
			build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
			run(build)
		}
		return p
	})
}

// Apply applies folders of config/, as the administrator of a server does. dir gets a kubeconfig.
func Apply(ctx context.Context, s *fleet.Server, dir string, folders ...string) error {
	return must.Try(func() {
		root := must.Get(fleet.ModuleDir(ctx, ours))
		kubeconfig := filepath.Join(dir, s.Name()+".kubeconfig")
		must.Do(fleet.WriteKubeconfig(kubeconfig, s.Name(), s.AdminConfig()))
		kubectl := filepath.Join(os.Getenv(fleet.AssetsVariable), "kubectl")
		for _, folder := range folders {
			run(exec.CommandContext(ctx, kubectl, "--kubeconfig="+kubeconfig, "--cache-dir="+filepath.Join(dir, "cache"),
				"apply", "--server-side", "--force-conflicts", "-k", filepath.Join(root, "config", folder)))
		}
	})
}

func run(cmd *exec.Cmd) {
	if out, err := cmd.CombinedOutput(); err != nil {
		must.Fail("%s: %w: %s", cmd, err, out)
	}
}

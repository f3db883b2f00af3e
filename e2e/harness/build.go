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

package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// KustomizeVariable is the environment variable that names the kustomize program.
const KustomizeVariable = "KUSTOMIZE"

// Programs are the programs that a drill runs beside the control planes.
type Programs struct {
	Hub, Guestbook string
	kustomize      string
	config         string // the folder config of the repository
}

// Build brings the programs in bin/ of the repository up to date and returns where they are. It works
// within the repository only.
func Build(ctx context.Context) (Programs, error) {
	kustomize := os.Getenv(KustomizeVariable)
	if kustomize == "" {
		return Programs{}, errors.New(KustomizeVariable + " is not set: it must name the kustomize program; make builds " +
			"it and sets this")
	}
	out, err := command(ctx, "", nil, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/leasecast/leasecast")
	if err != nil {
		return Programs{}, fmt.Errorf("find the repository: %w", err)
	}
	root := string(bytes.TrimSpace(out))
	p := Programs{
		Hub:       filepath.Join(root, "bin", "leasecast-hub"),
		Guestbook: filepath.Join(root, "bin", "guestbook"),
		kustomize: kustomize,
		config:    filepath.Join(root, "config"),
	}
	for target, source := range map[string]string{p.Hub: "./cmd/leasecast-hub", p.Guestbook: "./e2e/guestbook/cmd"} {
		// The same settings as in `make build`, so that what that has built is found up to date.
		if _, err := command(ctx, root, []string{"CGO_ENABLED=0"}, "go", "build", "-trimpath", "-o", target,
			source); err != nil {
			return Programs{}, fmt.Errorf("build: %w", err)
		}
	}
	return p, nil
}

// command runs a short program and returns what it printed.
func command(ctx context.Context, dir string, env []string, path string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(append([]string{path}, args...), " "), err,
			bytes.TrimSpace(exit.Stderr))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(append([]string{path}, args...), " "), err)
	}
	return out, nil
}

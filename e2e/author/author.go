// Package author builds programs as authors of controllers do: in a module of their own, which requires the readers'
// library alone, and with the oldest versions that the library works with.
package author

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/leasecast/leasecast/e2e/must"
)

// Ours is what the paths of this repository's modules begin with.
const Ours = "github.com/leasecast/leasecast"

// Snippet returns the one program in a file of Markdown.
func Snippet(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllSubmatch(text, -1)
	if len(found) != 1 {
		return "", fmt.Errorf("%s has %d snippets of Go, want 1", file, len(found))
	}
	return string(found[0][1]), nil
}

// Module is a module that requires one of ours, taken from a checkout.
type Module struct{ dir string }

// NewModule makes a module of files in an empty folder. It requires the named module of the checkout in root: api or
// member. That fixes the versions of all else, as no version is asked for.
func NewModule(ctx context.Context, dir, root, requires string, files map[string]string) (*Module, error) {
	return must.Return(func() *Module {
		sums := must.Get(os.ReadFile(filepath.Join(root, requires, "go.sum")))
		must.Do(os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o600))
		for name, text := range files {
			must.Do(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		m := &Module{dir}
		must.Get(m.Go(ctx, "mod", "init", "example.com/shops"))
		must.Get(m.Go(ctx, "mod", "edit", "-go="+Version(root, requires, "go"), "-require="+Ours+"/"+requires+"@v0.1.0",
			"-replace="+Ours+"/member="+filepath.Join(root, "member"), "-replace="+Ours+"/api="+filepath.Join(root, "api")))
		return m
	})
}

// Go runs a command of Go in the module, and returns what it prints.
func (m *Module) Go(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = m.dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", cmd, err, said.String())
	}
	return string(out), err
}

// Build builds the program of the module.
func (m *Module) Build(ctx context.Context) (program string, err error) {
	program = filepath.Join(m.dir, "program")
	_, err = m.Go(ctx, "build", "-o", program, ".")
	return program, err
}

// Version is that of Go, or of a module, in the go.mod of one of our modules: the oldest that it works with. It is
// empty where none is named.
func Version(root, of, what string) string {
	text, err := os.ReadFile(filepath.Join(root, of, "go.mod"))
	if err != nil {
		return ""
	}
	found := regexp.MustCompile(`(?m)^\t?` + regexp.QuoteMeta(what) + ` (\S+)`).FindSubmatch(text)
	if found == nil {
		return ""
	}
	return string(found[1])
}

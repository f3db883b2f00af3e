package guestbook

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

// ours is what the paths of this repository's modules begin with.
const ours = "github.com/leasecast/leasecast"

// snippet returns the one program in a file of Markdown.
func snippet(file string) (string, error) {
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

// authorModule is a module as authors of controllers have one. It requires one of ours, taken from a checkout.
type authorModule struct{ dir string }

// newModule makes a module of files in an empty folder. It requires the named module of the checkout in root: api or
// member. That fixes the versions of all else, as no version is asked for.
func newModule(ctx context.Context, dir, root, requires string, files map[string]string) (*authorModule, error) {
	return must.Return(func() *authorModule {
		sums := must.Get(os.ReadFile(filepath.Join(root, requires, "go.sum")))
		must.Do(os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o600))
		for name, text := range files {
			must.Do(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		m := &authorModule{dir}
		must.Get(m.run(ctx, "mod", "init", "example.com/shops"))
		must.Get(m.run(ctx, "mod", "edit", "-go="+versionOf(root, requires, "go"), "-require="+ours+"/"+requires+"@v0.1.0",
			"-replace="+ours+"/member="+filepath.Join(root, "member"), "-replace="+ours+"/api="+filepath.Join(root, "api")))
		return m
	})
}

// run runs a command of Go in the module, and returns what it prints.
func (m *authorModule) run(ctx context.Context, args ...string) (string, error) {
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

// build builds the program of the module.
func (m *authorModule) build(ctx context.Context) (program string, err error) {
	program = filepath.Join(m.dir, "program")
	_, err = m.run(ctx, "build", "-o", program, ".")
	return program, err
}

// versionOf is that of Go, or of a module, in the go.mod of one of our modules: the oldest that it works with. It is
// empty where none is named.
func versionOf(root, of, what string) string {
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

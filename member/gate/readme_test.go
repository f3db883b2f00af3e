package gate_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// What people copy out of the README compiles.
func TestTheReadmeCompiles(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllSubmatch(text, -1)
	if len(found) != 1 {
		t.Fatalf("README.md has %d snippets of Go, want 1", len(found))
	}
	dir := t.TempDir()
	snippet, overlay := filepath.Join(dir, "snippet.go"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(snippet, found[0][1], 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, "member/gate/snippet/snippet.go"): snippet}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "./member/gate/snippet")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

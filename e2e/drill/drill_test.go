package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
)

// folder is a folder of the test, within the repository, where the programs are built. It stays if the test fails.
func folder(t *testing.T) string {
	out := harness.Get(filepath.Abs(filepath.Join("..", "..", outDir)))(t)
	harness.Must(t, os.MkdirAll(out, 0o755))
	dir := harness.Get(os.MkdirTemp(out, "drill-test-"))(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("logs are in", dir)
			return
		}
		harness.Must(t, os.RemoveAll(dir))
	})
	return dir
}

func TestTheDemoLosesALeaderAndHandsOver(t *testing.T) {
	harness.Quiet()
	t.Chdir(folder(t))
	harness.Must(t, must.Try(func() { run(t.Context(), "demo") }))
	var f figures
	harness.Must(t, json.Unmarshal(harness.Get(os.ReadFile(demoFile))(t), &f))
	if f.Failover == nil || f.Floor == nil || *f.Failover < *f.Floor || f.Handover == nil || f.Overlaps != 0 {
		t.Errorf("%+v", f)
	}
	harness.Get(os.Stat(harness.ReportFile))(t)
}

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// folder is a folder of the test, within the repository, where the programs are built. It stays if the test fails.
func folder(t *testing.T) string {
	out := musttest.Get(filepath.Abs(filepath.Join("..", "..", outDir)))(t)
	musttest.Do(t, os.MkdirAll(out, 0o755))
	dir := musttest.Get(os.MkdirTemp(out, "drill-test-"))(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("logs are in", dir)
			return
		}
		musttest.Do(t, os.RemoveAll(dir))
	})
	return dir
}

func TestTheDemoLosesALeaderAndHandsOver(t *testing.T) {
	harness.Quiet()
	t.Chdir(folder(t))
	musttest.Do(t, must.Try(func() { run(t.Context(), "demo") }))
	var f figures
	musttest.Do(t, json.Unmarshal(musttest.Get(os.ReadFile(demoFile))(t), &f))
	if f.Failover == nil || f.Floor == nil || *f.Failover < *f.Floor || f.Handover == nil || f.Overlaps != 0 {
		t.Errorf("%+v", f)
	}
	musttest.Get(os.Stat(harness.ReportFile))(t)
}

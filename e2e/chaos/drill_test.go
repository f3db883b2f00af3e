package main

import (
	"slices"
	"testing"

	"github.com/leasecast/leasecast/e2e/harness"
)

// seeds have 19 of the 22 kinds of faults between them.
var seeds = []uint64{687, 1299}

// visible are the kinds whose effect does not depend on what other faults do at the same time.
var visible = []string{
	"apiserver-pause", "apiserver-kill", "etcd-pause", "etcd-kill", "etcd-restore", "reader-pause", "reader-kill",
	"link-delay", "namespace-delete", "priority-change",
}

// TestChaos plays a few schedules on real processes.
func TestChaos(t *testing.T) {
	st := harness.Get(start(t.Context(), t.TempDir(), func(line string) { t.Log(line) }))(t)
	t.Cleanup(func() {
		if err := st.close(); err != nil {
			t.Error(err)
		}
	})
	changes := 0
	for _, seed := range seeds {
		s := Generate(seed)
		o, err := st.play(t.Context(), s)
		if err != nil {
			t.Fatalf("%s%v", s, err)
		}
		t.Logf("%s\n%s", o, o.details())
		if o.Failed() {
			t.Errorf("seed %d failed", seed)
		}
		for _, f := range o.faults {
			if slices.Contains(visible, f.Kind.name) && !f.Took {
				t.Errorf("%s had no effect: %s", f.Fault, f.Effect)
			}
		}
		changes += o.Changes
	}
	if changes == 0 {
		t.Error("nobody took over from anybody: it proves little")
	}
}

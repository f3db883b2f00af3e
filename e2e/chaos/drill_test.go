package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasecast/leasecast/e2e/chaos/history"
	"github.com/leasecast/leasecast/e2e/harness"
)

// seeds have 19 of the 22 kinds of faults between them.
var seeds = []uint64{687, 1299}

// visible are the kinds whose effect does not hang on what other faults do at the same time.
var visible = []Kind{
	ServerPause, ServerKill, EtcdPause, EtcdKill, EtcdRestore, ReaderPause, ReaderKill,
	LinkDelay, NamespaceDelete, Priority,
}

// TestChaos plays a few schedules on real processes, and then shows that the drill can fail.
func TestChaos(t *testing.T) {
	st, err := start(t.Context(), t.TempDir(), func(line string) { t.Log(line) })
	harness.Must(t, err)
	t.Cleanup(func() {
		if err := st.close(); err != nil {
			t.Error(err)
		}
	})
	harness.Must(t, st.settle(t.Context()))
	changes := 0
	for _, seed := range seeds {
		s := Generate(seed)
		o, err := st.play(t.Context(), s)
		if err != nil {
			t.Fatalf("%s%v", s, err)
		}
		t.Logf("%s\n%s", o.line(newReport()), o.details("not written"))
		if o.Failed() {
			t.Errorf("seed %d failed", seed)
		}
		for _, f := range o.Faults {
			if slices.Contains(visible, f.Kind) && !f.Took {
				t.Errorf("%s had no effect: %s", f.Fault, f.Effect)
			}
		}
		changes += o.Changes
	}
	if changes == 0 {
		t.Error("nobody took over from anybody: it proves little")
	}
	noticesABrokenReader(t, st)
}

// noticesABrokenReader has a reader that ignores its deadlines in a cluster that the hub no longer reaches.
func noticesABrokenReader(t *testing.T, st *stage) {
	const namespace = "shop"
	leader := st.leader(namespace)
	broken, err := st.startReader(leader, leader+"-broken", "-ignore-deadline")
	harness.Must(t, err)
	t.Cleanup(func() {
		if err := broken.Kill(); err != nil {
			t.Error(err)
		}
	})
	err = harness.Await(t.Context(), time.Minute, "the broken reader acts", func(context.Context) error {
		for _, w := range st.store.Writes() {
			if w.Namespace == namespace && strings.HasPrefix(w.Value, leader+"-broken/") {
				return nil
			}
		}
		return errors.New("it has not written")
	})
	harness.Must(t, err)
	o, err := st.play(t.Context(), Schedule{Faults: []Fault{{Kind: LinkBlackHole, Target: leader, Namespace: namespace, For: 6 * time.Second}}})
	harness.Must(t, err)
	if !slices.ContainsFunc(o.Overlaps, func(b harness.Breach) bool {
		return b.Rule == harness.TwoAtOnce && b.Later.Namespace == namespace && (b.Earlier.Cluster == leader) != (b.Later.Cluster == leader)
	}) {
		t.Errorf("a reader of %s that ignores its deadlines was not noticed: %q", leader, o.verdict())
	}
	if !o.Failed() {
		t.Error("an outcome with overlaps has not failed")
	}
	if o.StaleUnfenced == 0 {
		t.Error("the plain register took nothing of a term that was over")
	}
	if o.StaleFenced != 0 || len(o.Unordered) > 0 {
		t.Errorf("the fence did not hold: %d stale writes taken, out of order: %v", o.StaleFenced, o.Unordered)
	}
	refused := 0
	for _, c := range o.evidence.calls[leader] {
		if c.Result == history.Refused {
			refused++
		}
	}
	if refused == 0 {
		t.Errorf("no write of %s was refused", leader)
	}
	drawn(t, o)
}

// drawn looks whether the timeline shows what happened.
func drawn(t *testing.T, o *Outcome) {
	t.Helper()
	file, err := writeTimeline(t.TempDir(), o)
	harness.Must(t, err)
	raw, err := os.ReadFile(file)
	harness.Must(t, err)
	page := string(raw)
	for _, want := range []string{
		`class="overlap"`, `class="permit"`, `class="act"`, `class="fault link"`, `class="elected shade0"`, "failed", string(harness.TwoAtOnce),
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the timeline lacks %s", want)
		}
	}
	for _, foreign := range []string{"<script", "src=", "http://", "https://", "@import"} {
		if strings.Contains(page, foreign) {
			t.Errorf("the timeline is not self-contained: it has %s", foreign)
		}
	}
	if keep := os.Getenv("CHAOS_KEEP"); keep != "" {
		harness.Must(t, os.WriteFile(keep, raw, 0o644))
	}
}

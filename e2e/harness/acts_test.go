package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/leasecast/leasecast/e2e/guestbook/acts"
	"github.com/leasecast/leasecast/member"
)

// TestActLogReadsWhatAGuestbookWrites goes through the real writer.
func TestActLogReadsWhatAGuestbookWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "acts")
	log := NewActLog(path)
	if got, err := log.Acts(); err != nil || len(got) != 0 {
		t.Fatalf("a log that does not exist yet: %v, %v", got, err)
	}
	file, err := os.Create(path)
	Must(t, err)
	defer func() { _ = file.Close() }()
	writer := acts.NewLog("east", file)

	before := Now().Boot
	var during []Act
	Must(t, writer.Do(context.Background(), "print", "shop", "first", func() (err error) {
		during, err = log.Acts()
		return err
	}))
	if len(during) != 1 || during[0].End != Unfinished {
		t.Errorf("during the act: %+v, want one without an end", during)
	}
	refused := errors.New("refused")
	if err := writer.Do(context.Background(), "write", "shop", "second", func() error { return refused }); !errors.Is(err,
		refused) {
		t.Fatal(err)
	}
	if err := writer.Do(context.Background(), "print", "shop", "third",
		func() error { return fmt.Errorf("%w: late", member.ErrNotBegun) }); err == nil {
		t.Fatal("an act that was not begun, and no error")
	}
	got, err := log.Acts()
	Must(t, err)
	want := []Act{ // and not what was not begun
		{Cluster: "east", Namespace: "shop", Object: "first", What: "print", Result: acts.OK},
		{Cluster: "east", Namespace: "shop", Object: "second", What: "write", Result: "refused"},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Act{}, "Begin", "End")); diff != "" {
		t.Errorf("acts (-want +got):\n%s", diff)
	}
	const slack = time.Millisecond // two readers of one clock, each calibrated by itself
	for last := before - slack; len(got) > 0; got = got[1:] {
		if a := got[0]; a.Begin < last || a.End < a.Begin || a.End > Now().Boot+slack {
			t.Errorf("act %+v is not between its neighbours", a)
		}
		last = got[0].End
	}
}

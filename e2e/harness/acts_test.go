package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/leasecast/leasecast/e2e/guestbook/acts"
	"github.com/leasecast/leasecast/member"
)

// TestActLogReadsWhatAGuestbookWrites uses the guestbook's writer.
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
	do := func(what, object string, result error) {
		t.Helper()
		if err := writer.Do(context.Background(), what, "shop", object, func() error {
			during, err := log.Acts()
			Must(t, err)
			if last := during[len(during)-1]; last.Object != object || last.End != Unfinished {
				t.Errorf("during the act: %+v, want one without an end", last)
			}
			return result
		}); !errors.Is(err, result) {
			t.Fatal(err)
		}
	}
	do("print", "first", nil)
	do("write", "second", errors.New("refused"))
	do("print", "third", fmt.Errorf("%w: late", member.ErrNotBegun))
	got, err := log.Acts()
	Must(t, err)
	want := []Act{
		{Cluster: "east", Namespace: "shop", Object: "first", What: "print", Result: acts.OK},
		{Cluster: "east", Namespace: "shop", Object: "second", What: "write", Result: "refused"},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Act{}, "Begin", "End")); diff != "" {
		t.Errorf("acts (-want +got):\n%s", diff)
	}
	if got[0].End < got[0].Begin || got[1].Begin < got[0].End {
		t.Errorf("the acts are not one after the other: %+v", got)
	}
}

package acts_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/leasecast/leasecast/e2e/guestbook/acts"
)

func TestALogInAFolderShowsWhetherItsProcessLives(t *testing.T) {
	folder := t.TempDir()
	first, err := acts.Create(folder)
	if err != nil {
		t.Fatal(err)
	}
	second, err := acts.Create(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = second.Close() }()
	ended := func() (ended, live int) {
		t.Helper()
		logs, err := acts.Logs(folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, log := range logs {
			gone, err := acts.Ended(log)
			switch {
			case err != nil:
				t.Fatal(err)
			case gone:
				ended++
			default:
				live++
			}
		}
		return ended, live
	}
	if e, l := ended(); e != 0 || l != 2 {
		t.Errorf("%d ended and %d live, want 0 and 2", e, l)
	}
	if err := first.Close(); err != nil { // as the kernel does at the end of a process
		t.Fatal(err)
	}
	if e, l := ended(); e != 1 || l != 1 {
		t.Errorf("%d ended and %d live, want 1 and 1", e, l)
	}
}

func TestALogThatIsNotLockedYetIsNoLog(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, ".guestbook-1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if logs, err := acts.Logs(folder); err != nil || len(logs) != 0 {
		t.Errorf("%v %v, want no log", logs, err)
	}
}

package history

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/leasecast/leasecast/e2e/chaos/register"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/lines"
)

func TestFollowPairsTheLinesOfCalls(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	f := Follow(path)
	if calls, err := f.Calls(0); err != nil || len(calls) != 0 {
		t.Fatalf("before there is a file: %v, %v", calls, err)
	}
	file := harness.Get(os.Create(path))(t)
	defer func() { _ = file.Close() }()
	w := lines.NewWriter(file)
	harness.Must(t, w.Write(Line{ID: 1, At: 10, Namespace: "shop", Right: &Right{Asked: 1, Told: 2, Left: 3},
		State: register.State{Epoch: 7, Value: "a"}}))
	harness.Must(t, w.Write(Line{ID: 2, At: 11, Namespace: "shop"}))
	harness.Must(t, w.Write(Line{ID: 1, At: 20, Result: Refused}))
	calls, err := f.Calls(0)
	harness.Must(t, err)
	if len(calls) != 2 || calls[0].Result != Refused || calls[0].Returned != 20 || calls[0].Right.Left != 3 ||
		calls[0].Value != "a" {
		t.Fatalf("got %+v", calls)
	}
	if c := calls[1]; c.Result != Unknown || c.Returned != Pending || c.Right != nil {
		t.Errorf("a call that has not returned: %+v", c)
	}
	_, err = file.WriteString(`{"id":2,"at":30,"resu`)
	harness.Must(t, err)
	if calls, err = f.Calls(25); err != nil || len(calls) != 1 || calls[0].Result != Unknown {
		t.Fatalf("with half a line, and without what had returned: %+v, %v", calls, err)
	}
	_, err = file.WriteString(`lt":"ok","epoch":7,"value":"b"}` + "\n")
	harness.Must(t, err)
	if calls, err = f.Calls(25); err != nil || len(calls) != 1 || calls[0].Read != (register.State{Epoch: 7,
		Value: "b"}) || calls[0].Returned != 30 {
		t.Fatalf("with the whole line: %+v, %v", calls, err)
	}
	harness.Must(t, w.Write(Line{ID: 9, At: 40, Result: OK}))
	if _, err := f.Calls(0); err == nil {
		t.Error("an end without a beginning is no error")
	}
}

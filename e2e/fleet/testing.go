package fleet

import "context"

// TB is the part of testing.TB that New needs. Naming it here keeps package testing out of the
// programs that use a fleet.
type TB interface {
	Helper()
	Cleanup(func())
	Context() context.Context
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// New starts a fleet for a test and stops it when the test is over. A fleet that does not start
// fails the test.
func New(t TB, members ...string) *Fleet {
	t.Helper()
	f, err := Start(t.Context(), Options{
		Members:  members,
		Progress: func(line string) { t.Logf("%s", line) },
	})
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := f.Stop(); err != nil {
			t.Errorf("stop the fleet: %v", err)
		}
	})
	return f
}

// Package musttest is what the tests of this module share: an error fails a test at once, and rows run in bubbles.
package musttest

import (
	"testing"
	"testing/synctest"
)

// Do fails the test at once if there is an error.
func Do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Get returns a value unless there is an error: Get(f())(t).
func Get[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		Do(t, err)
		return value
	}
}

// Each runs f for every row, in a bubble of its own.
func Each[T any](t *testing.T, rows map[string]T, f func(t *testing.T, row T)) {
	t.Helper()
	for name, row := range rows {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { f(t, row) }) })
	}
}

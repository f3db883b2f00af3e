package lines

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestALineCountsOnceItIsWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	f := Follow(path)
	for _, step := range []struct {
		written string
		want    []string
	}{
		{"", nil},
		{"one\ntw", []string{"one"}},
		{"", nil},
		{"o\n\nfour\nfi", []string{"two", "", "four"}},
		{"ve\n", []string{"five"}},
	} {
		write(t, path, step.written)
		var got []string
		err := f.News(func(line []byte) error {
			got = append(got, string(line))
			return nil
		})
		if err != nil || !slices.Equal(got, step.want) {
			t.Errorf("after %q: %q, %v; want %q", step.written, got, err, step.want)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if text == "" {
		return
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteString(text)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}

// Package lines follows files to which other processes append whole lines: logs of acts, histories
// of calls. What is being written at the moment is left for the next time.
package lines

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// File follows one file. It is not safe for concurrent use.
type File struct {
	path string
	read int64 // bytes taken in
}

// Follow follows a file, which need not exist yet.
func Follow(path string) *File { return &File{path: path} }

// News calls take with each line that has been finished since the last time, without its newline, in
// order. A line that take returns an error for ends that, and is the first one of the next time.
func (f *File) News(take func(line []byte) error) error {
	news, err := f.rest()
	if err != nil {
		return fmt.Errorf("follow %s: %w", f.path, err)
	}
	for {
		line, rest, whole := bytes.Cut(news, []byte{'\n'})
		if !whole {
			return nil
		}
		if err := take(line); err != nil {
			return fmt.Errorf("%s, at byte %d: %w", f.path, f.read, err)
		}
		f.read += int64(len(line)) + 1
		news = rest
	}
}

func (f *File) rest() ([]byte, error) {
	file, err := os.Open(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(f.read, io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(file)
}

// Package lines writes and follows files to which processes append whole lines: logs of acts, histories
// of calls. A line that is not finished yet is left for the next call.
package lines

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// File follows one file. It is not safe for concurrent use.
type File struct {
	path string
	read int64 // bytes of finished lines
}

// Follow follows a file, which need not exist yet.
func Follow(path string) *File { return &File{path: path} }

// News calls take, in order, with each line that was finished since the last call, without its newline. If take returns
// an error, News stops, and the next call begins with that line.
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

// Writer appends lines of JSON. It is safe for concurrent use.
type Writer struct {
	mu  sync.Mutex
	out io.Writer
}

// NewWriter returns a Writer whose every line is one Write to out. A file needs no flushing, and no line of a process
// that is killed is lost.
func NewWriter(out io.Writer) *Writer { return &Writer{out: out} }

// Write appends a line.
func (w *Writer) Write(line any) error {
	raw, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("write a line: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.out.Write(append(raw, '\n')); err != nil {
		return fmt.Errorf("write a line: %w", err)
	}
	return nil
}

// Package lines follows files to which other processes append whole lines: logs of acts, histories
// of calls. A line that is not finished yet is left for the next call.
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

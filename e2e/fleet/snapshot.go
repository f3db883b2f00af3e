package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Snapshot is what the etcd of one server held at an instant. It lives as long as the fleet, or until
// Discard.
type Snapshot struct{ server, dir string }

// Discard gives back the space of a snapshot, which cannot be restored any more.
func (b Snapshot) Discard() error {
	if err := os.RemoveAll(b.dir); err != nil {
		return fmt.Errorf("discard a snapshot of %s: %w", b.server, err)
	}
	return nil
}

// Snapshot takes a Lease of etcd's data, of this instant or, if etcd is dead, of its end. A running
// etcd, which must not be paused, is stopped while its files are copied, for tens of milliseconds, and has what a crash
// leaves: all that it has acknowledged. The API server goes on and does not notice.
func (s *Server) Snapshot(ctx context.Context) (b Snapshot, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("snapshot of %s: %w", s.name, err)
		}
	}()
	dir, err := os.MkdirTemp(s.dir, "snapshot-")
	if err != nil {
		return Snapshot{}, err
	}
	if s.etcd.pid() != 0 {
		if err := s.etcd.pause(); err != nil {
			return Snapshot{}, errors.Join(err, os.RemoveAll(dir))
		}
		defer func() { err = errors.Join(err, s.etcd.resume()) }()
	}
	if err := copyTree(ctx, dir, s.etcdData()); err != nil {
		return Snapshot{}, errors.Join(err, os.RemoveAll(dir))
	}
	return Snapshot{s.name, dir}, nil
}

// Restore ends all processes of the server at once, paused ones too, puts etcd's data back to the snapshot's and
// starts everything anew; it returns when the server is ready. What was written since the snapshot is gone, and
// resourceVersions go back: they are given out a second time, to other objects. A snapshot can be restored any number
// of times, into the server that it was taken of. ctx, and a limit of two minutes, bound the wait; after an error the
// server may be down or have either data.
func (s *Server) Restore(ctx context.Context, b Snapshot) error {
	if b.server != s.name {
		return fmt.Errorf("restore %s: the snapshot is one of %q", s.name, b.server)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := errors.Join(s.apiserver.kill(), s.controller.kill(), s.etcd.kill()); err != nil {
		return err
	}
	if err := os.RemoveAll(s.etcdData()); err != nil {
		return fmt.Errorf("restore %s: %w", s.name, err)
	}
	if err := copyTree(ctx, s.etcdData(), b.dir); err != nil {
		return fmt.Errorf("restore %s: %w", s.name, err)
	}
	return s.start(ctx)
}

// KillEtcd ends etcd at once, as a crash does, and returns when it is gone. The API server goes on without it: it
// answers what its watch cache knows, until RestartEtcd.
func (s *Server) KillEtcd() error { return s.etcd.kill() }

// RestartEtcd starts etcd again with its data and returns when it is healthy; one that runs is killed
// first. ctx, and a limit of two minutes, bound the wait. The API server finds it again by itself, soon after.
func (s *Server) RestartEtcd(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := s.etcd.kill(); err != nil {
		return err
	}
	return s.startEtcd(ctx)
}

// copyTree Leases a folder of regular files.
func copyTree(ctx context.Context, to, from string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		if entry.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		return copyFile(target, path)
	})
}

// copyFile leaves holes where there are zeros: etcd's log is allocated far ahead.
func copyFile(to, from string) (err error) {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	block, zeros := make([]byte, 64<<10), make([]byte, 64<<10)
	var size int64
	for {
		n, err := io.ReadFull(source, block)
		if n > 0 && !bytes.Equal(block[:n], zeros[:n]) {
			if _, err := target.WriteAt(block[:n], size); err != nil {
				return err
			}
		}
		size += int64(n)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return target.Truncate(size)
		case err != nil:
			return err
		}
	}
}

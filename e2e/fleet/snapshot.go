package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// Snapshot is what the etcd of one server held at an instant. It lives as long as the fleet, or until Discard.
type Snapshot struct{ dir string }

// Discard removes a snapshot, which cannot be restored anymore.
func (b Snapshot) Discard() error { return os.RemoveAll(b.dir) }

// Snapshot copies etcd's data. It pauses etcd, which must run, while its files are copied. So the copy is what a crash
// leaves, with all that etcd has acknowledged. The API server does not notice.
func (s *Server) Snapshot(context.Context) (b Snapshot, err error) {
	dir, err := os.MkdirTemp(s.dir, "snapshot-")
	if err != nil {
		return Snapshot{}, err
	}
	if err := s.PauseEtcd(); err != nil {
		return Snapshot{}, err
	}
	err = errors.Join(os.CopyFS(dir, os.DirFS(s.etcdData())), s.ResumeEtcd())
	return Snapshot{dir}, err
}

// Restore kills all processes of the server, replaces etcd's data by a snapshot of the same server, starts everything
// again, and returns when the server is ready. Later writes are lost, and the server gives their resourceVersions to
// other objects. ctx and a limit of two minutes bound the wait.
func (s *Server) Restore(ctx context.Context, b Snapshot) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err := errors.Join(s.apiserver.last().Kill(), s.controller.last().Kill(), s.etcd.last().Kill(),
		os.RemoveAll(s.etcdData()), os.CopyFS(s.etcdData(), os.DirFS(b.dir)))
	if err != nil {
		return fmt.Errorf("restore %s: %w", s.name, err)
	}
	return s.start(ctx)
}

package fleet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

const (
	workDirPrefix = "leasecast-fleet-"
	lockName      = "lock"
)

// workDir is the folder of a fleet's data. Its owner holds a lock in it, which the kernel
// releases when the owner dies, so that the next fleet knows what is left over.
type workDir struct {
	path string
	lock *os.File
}

// newWorkDir also removes the folders of dead owners: they are large.
func newWorkDir() (*workDir, error) {
	removeLeftovers()
	path, err := os.MkdirTemp("", workDirPrefix)
	if err != nil {
		return nil, fmt.Errorf("make the fleet's folder: %w", err)
	}
	lock, err := newLock(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock the fleet's folder: %w", err), os.RemoveAll(path))
	}
	return &workDir{path: path, lock: lock}, nil
}

// newLock gives the lock its name only when it is locked, so that nobody takes the folder for a
// leftover in between.
func newLock(dir string) (*os.File, error) {
	unnamed := filepath.Join(dir, lockName+".new")
	lock, err := os.OpenFile(unnamed, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if err := os.Rename(unnamed, filepath.Join(dir, lockName)); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

func (d *workDir) remove() error {
	err := os.RemoveAll(d.path)
	_ = d.lock.Close() // the file is gone
	if err != nil {
		return fmt.Errorf("remove the fleet's folder: %w", err)
	}
	return nil
}

// removeLeftovers does what it can: leftovers cost space, not correctness. A folder that has
// no lock yet is being made.
func removeLeftovers() {
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), workDirPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(dir)
		}
		_ = lock.Close()
	}
}

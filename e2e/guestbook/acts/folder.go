package acts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// suffix is that of the names of act logs in a folder.
const suffix = ".acts"

// Create creates the act log of this process in a shared folder. The process holds a lock on it until it ends: see
// [Ended].
func Create(folder string) (*os.File, error) {
	file, err := os.CreateTemp(folder, ".guestbook-*")
	if err != nil {
		return nil, err
	}
	// It gets its name when it is locked, so that nobody takes a new log for that of a process that has ended.
	made := filepath.Join(folder, strings.TrimPrefix(filepath.Base(file.Name()), ".")+suffix)
	err = errors.Join(
		file.Chmod(0o644),
		syscall.Flock(int(file.Fd()), syscall.LOCK_EX),
		os.Rename(file.Name(), made),
	)
	if err != nil {
		return nil, errors.Join(err, file.Close(), os.Remove(file.Name()))
	}
	return file, nil
}

// Logs are the act logs in a folder.
func Logs(folder string) ([]string, error) { return filepath.Glob(filepath.Join(folder, "*"+suffix)) }

// Ended reports whether the process that made an act log with [Create] has ended, also in a container of this machine.
func Ended(log string) (bool, error) {
	file, err := os.Open(log)
	if err != nil {
		return false, err
	}
	defer func() { _ = file.Close() }()
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		return false, nil
	default:
		return false, fmt.Errorf("lock of %s: %w", log, err)
	}
}

package fleet

import (
	"os"
	"path/filepath"
	"syscall"

	"github.com/leasecast/leasecast/e2e/must"
)

const workDirPrefix = "leasecast-rig-" // short, as paths of sockets are

// workDir is the folder of a fleet's data. Its owner locks it; the kernel unlocks it when the owner dies.
type workDir struct {
	path string
	lock *os.File
}

// newWorkDir also removes the folders of dead owners: they are large.
func newWorkDir() (*workDir, error) {
	removeLeftovers()
	return must.Return(func() *workDir {
		path := must.Get(os.MkdirTemp("", workDirPrefix))
		return &workDir{path, must.Get(lockDir(path))}
	})
}

func lockDir(path string) (*os.File, error) {
	dir, err := os.Open(path)
	if err == nil {
		err = syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	return dir, err
}

func (d *workDir) remove() error {
	defer func() { _ = d.lock.Close() }()
	return os.RemoveAll(d.path)
}

// removeLeftovers removes what it can. A folder without a server is being made and may not be locked yet.
func removeLeftovers() {
	hubs, _ := filepath.Glob(filepath.Join(os.TempDir(), workDirPrefix+"*", hubName)) // the pattern is valid
	for _, hub := range hubs {
		dir := filepath.Dir(hub)
		lock, err := lockDir(dir)
		if err == nil {
			_ = os.RemoveAll(dir)
		}
		_ = lock.Close()
	}
}

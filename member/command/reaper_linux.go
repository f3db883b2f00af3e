package command

import (
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	utilclock "k8s.io/utils/clock"
)

// reaper waits for all children of this process. Orphans of the program become children too, so that none is left
// unseen. As the first process of a container the gate has this duty anyway.
type reaper struct {
	some  chan struct{} // holds a word when a child has ended
	mu    sync.Mutex
	known map[int]*child
}

// child is a process that the gate has started.
type child struct {
	pid    int
	ended  chan struct{}      // closed when it has
	status syscall.WaitStatus // how; read only after that
}

// newReaper is called once in a process: nothing else in it may wait for children.
func newReaper() (*reaper, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become the parent of orphans: %w", err)
	}
	if _, err := childrenOf(os.Getpid(), 0); err != nil {
		return nil, fmt.Errorf("look for processes that the program leaves behind: %w", err)
	}
	r := &reaper{known: map[int]*child{}, some: make(chan struct{}, 1)}
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGCHLD)
	go func() {
		for range changed {
			r.reap()
		}
	}()
	return r, nil
}

// start starts a child in a process group, or as the leader of a new one: 0.
func (r *reaper) start(path string, args, environment []string, files []*os.File, group int) (*child, error) {
	r.mu.Lock() // it is known before it can be waited for
	defer r.mu.Unlock()
	p, err := os.StartProcess(path, args, &os.ProcAttr{Env: environment, Files: files, Sys: &syscall.SysProcAttr{Setpgid: true, Pgid: group}})
	if err != nil {
		return nil, err
	}
	c := &child{pid: p.Pid, ended: make(chan struct{})}
	r.known[c.pid] = c
	return c, p.Release()
}

// reap takes note of all children that have ended.
func (r *reaper) reap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil || pid <= 0:
			return
		}
		if c := r.known[pid]; c != nil {
			delete(r.known, pid)
			c.status = status
			close(c.ended)
		}
		select {
		case r.some <- struct{}{}:
		default: // one word is waiting already
		}
	}
}

// killSince kills all children that were started at some time or later, and returns when none is left. The children of
// those are adopted and killed in turn.
func (r *reaper) killSince(started uint64) {
	for r.killOnce(started) {
		select {
		case <-r.some:
		case <-utilclock.RealClock{}.After(look): // what cannot be killed now may end later
		}
	}
}

// killOnce reports whether some are left. None is waited for in between, so no number becomes another's.
func (r *reaper) killOnce(started uint64) (left bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	children, err := childrenOf(os.Getpid(), started)
	for _, c := range children {
		_ = syscall.Kill(c.pid, syscall.SIGKILL)
	}
	return err != nil || len(children) > 0
}

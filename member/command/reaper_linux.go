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

// reaper waits for all children of this process. Orphans of the program become children too, so that it sees them all.
// As the first process of a container the gate has this duty anyway.
type reaper struct {
	some  chan struct{} // holds a value when a child has ended
	mu    sync.Mutex
	known map[int]*child
}

// child is a process that the gate has started.
type child struct {
	pid    int
	ended  chan struct{}      // closed when it has ended
	status syscall.WaitStatus // its exit; read only after ended is closed
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

// start starts a child in a process group. Group 0 makes it the leader of a new group.
func (r *reaper) start(path string, args, environment []string, files []*os.File, group int) (*child, error) {
	r.mu.Lock() // r must know the child before reap can wait for it
	defer r.mu.Unlock()
	sys := &syscall.SysProcAttr{Setpgid: true, Pgid: group}
	p, err := os.StartProcess(path, args, &os.ProcAttr{Env: environment, Files: files, Sys: sys})
	if err != nil {
		return nil, err
	}
	c := &child{pid: p.Pid, ended: make(chan struct{})}
	r.known[c.pid] = c
	return c, p.Release()
}

// reap collects all children that have ended.
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
		default: // a value is pending already
		}
	}
}

// killSince kills all children that were started at started or later, and returns when none is left. It adopts and
// kills their children in turn.
func (r *reaper) killSince(started uint64) {
	for r.killOnce(started) {
		select {
		case <-r.some:
		case <-utilclock.RealClock{}.After(look): // what cannot be killed now may end later
		}
	}
}

// killOnce kills such children once, and reports whether some are left. It holds the lock, so no child is reaped and no
// pid is reused in between.
func (r *reaper) killOnce(started uint64) (left bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	children, err := childrenOf(os.Getpid(), started)
	for _, c := range children {
		_ = syscall.Kill(c.pid, syscall.SIGKILL)
	}
	return err != nil || len(children) > 0
}

package fleet

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"sync"
)

// nest starts the processes of a fleet, and ends them all when it is closed. It starts them from
// one operating-system thread that lives as long as they do: the kernel's "kill me when my parent
// dies" means the parent's *thread*, and Go ends threads when it sees fit, so a server that was
// started from any goroutine could be killed in the middle of a test.
type nest struct {
	requests chan func()
	closing  sync.Once
	quit     chan struct{}
	done     sync.WaitGroup
	started  []*os.Process // known to run only
}

func newNest() *nest {
	n := &nest{requests: make(chan func()), quit: make(chan struct{})}
	n.done.Go(n.run)
	return n
}

func (n *nest) run() {
	runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
	for {
		select {
		case start := <-n.requests:
			start()
		case <-n.quit:
			for _, process := range n.started {
				_ = process.Kill() // fails only for those that have ended
			}
			return
		}
	}
}

// start starts a command, and then runs wait, which must return when the process has ended.
func (n *nest) start(cmd *exec.Cmd, wait func()) error {
	result := make(chan error, 1)
	request := func() {
		err := cmd.Start()
		if err == nil {
			n.started = append(n.started, cmd.Process)
			n.done.Go(wait)
		}
		result <- err
	}
	select {
	case n.requests <- request:
		return <-result
	case <-n.quit:
		return errors.New("the fleet has been stopped")
	}
}

// close kills every process, refuses further starts and returns when all have ended.
func (n *nest) close() {
	n.closing.Do(func() { close(n.quit) })
	n.done.Wait()
}

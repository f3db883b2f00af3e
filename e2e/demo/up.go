package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
)

const (
	// serveArg makes the demo the process that owns a fleet which was left running.
	serveArg = "serve"
	// ready is the last line of the server's progress.
	ready = "ready"
	// downLimit bounds an orderly end; then the server is killed, and the kernel kills what it started.
	downLimit = time.Minute
)

func pidFile() string  { return filepath.Join(outDir, "up.pid") }
func serveLog() string { return filepath.Join(outDir, "up.log") }

// up starts a server for the fleet, which outlives this process, and returns when the fleet is ready.
func up(ctx context.Context) error {
	if err := os.MkdirAll(outDir, 0o755); err != nil {
		return err
	}
	if pid, lock, err := lockPID(); err != nil {
		return err
	} else if lock == nil {
		return fmt.Errorf("the fleet is up already, as process %d: `make down` stops it", pid)
	} else if err := lock.Close(); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start the fleet: %w", err)
	}
	progress, far, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start the fleet: %w", err)
	}
	defer func() { _ = progress.Close() }()
	log, err := os.Create(serveLog())
	if err != nil {
		return fmt.Errorf("start the fleet: %w", err)
	}
	defer func() { _ = log.Close() }()
	server := exec.Command(self, serveArg)
	server.Stdout, server.Stderr, server.ExtraFiles = log, log, []*os.File{far}
	server.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no Ctrl-C of this terminal reaches it
	if err := server.Start(); err != nil {
		return fmt.Errorf("start the fleet: %w", err)
	}
	_ = far.Close()                                                                       // the server has its own; ours would hide its end
	stop := context.AfterFunc(ctx, func() { _ = server.Process.Signal(syscall.SIGTERM) }) // it cleans up, and closes the pipe
	defer stop()
	if !relay(progress, os.Stdout) {
		_ = server.Wait() // how it ended is in its log
		if ctx.Err() != nil {
			return errInterrupted
		}
		return fmt.Errorf("the fleet did not come up; %s says why:\n%s", serveLog(), tail(serveLog()))
	}
	return server.Process.Release()
}

// relay prints the server's progress and reports whether it became ready.
func relay(progress io.Reader, out io.Writer) bool {
	lines := bufio.NewScanner(progress)
	for lines.Scan() {
		if lines.Text() == ready {
			return true
		}
		_, _ = fmt.Fprintln(out, lines.Text())
	}
	return false
}

func tail(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return "\t" + strings.Join(lines[max(0, len(lines)-20):], "\n\t")
}

// progressPipe is where the one who started the server listens.
func progressPipe() (*os.File, error) {
	const fd = 3 // the first of ExtraFiles
	pipe := os.NewFile(fd, "progress")
	if info, err := pipe.Stat(); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return nil, errors.New("use up: the server is started by it")
	}
	syscall.CloseOnExec(fd) // or the control planes would keep it open
	return pipe, nil
}

// serve owns the fleet until down or a signal stops it. It restarts hub and guestbooks when they end. They end with it,
// also when it is killed.
func serve(ctx context.Context) (err error) {
	pid, lock, err := lockPID()
	if err != nil {
		return err
	}
	if lock == nil {
		return fmt.Errorf("the fleet is up already, as process %d", pid)
	}
	defer func() { _ = errors.Join(os.Remove(pidFile()), lock.Close()) }() // in this order: the lock guards the name
	if err := writePID(lock); err != nil {
		return err
	}
	progress, err := progressPipe()
	if err != nil {
		return err
	}
	n := newNarrator(io.MultiWriter(progress, os.Stdout))
	d, err := harness.Start(ctx, cast("up", 5*time.Second, n.step))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Stop()) }()
	for _, namespace := range namespaces {
		a, err := d.AwaitAct(ctx, electLimit, "somebody acts in "+namespace, func(a harness.Act) bool { return a.Namespace == namespace })
		if err != nil {
			return err
		}
		n.step(fmt.Sprintf("%s: the guestbook in %s acts", namespace, a.Cluster))
	}
	defer func() { err = errors.Join(err, removeKubeconfigs(d)) }()
	if err := d.Fleet.WriteKubeconfigs(outDir); err != nil {
		return err
	}
	n.print(instructions(d))
	n.print(ready + "\n")
	n.redirect(os.Stdout)
	_ = progress.Close()
	kept := d.Keep(ctx, n.step)
	<-ctx.Done()
	kept()
	return nil
}

// removeKubeconfigs removes what leads nowhere any more.
func removeKubeconfigs(d *harness.Drill) error {
	var errs []error
	for _, s := range d.Fleet.Servers() {
		errs = append(errs, os.Remove(filepath.Join(outDir, s.Name()+".kubeconfig")))
	}
	return errors.Join(errs...)
}

// lockPID takes the lock of the pid file, which its owner holds as long as it lives. If somebody else holds it, the
// lock is nil and the pid is theirs.
func lockPID() (pid int, lock *os.File, err error) {
	lock, err = os.OpenFile(pidFile(), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return 0, nil, fmt.Errorf("pid file: %w", err)
	}
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return 0, lock, nil
	}
	defer func() { _ = lock.Close() }()
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return 0, nil, fmt.Errorf("lock %s: %w", pidFile(), err)
	}
	text, err := io.ReadAll(lock)
	if err != nil {
		return 0, nil, fmt.Errorf("pid file: %w", err)
	}
	if pid, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil || pid <= 1 {
		return 0, nil, fmt.Errorf("%s is held by somebody but names no process: %q", pidFile(), text)
	}
	return pid, nil, nil
}

func writePID(lock *os.File) error {
	if err := lock.Truncate(0); err != nil {
		return fmt.Errorf("pid file: %w", err)
	}
	if _, err := lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		return fmt.Errorf("pid file: %w", err)
	}
	return nil
}

// down stops the fleet that is up, and returns when it is gone.
func down(ctx context.Context) error {
	if _, err := os.Stat(pidFile()); errors.Is(err, os.ErrNotExist) {
		fmt.Println("the fleet is not up")
		return nil
	}
	pid, lock, err := lockPID()
	if err != nil {
		return err
	}
	if lock != nil { // its owner was killed, and took everything along
		fmt.Println("the fleet is not up; removing the pid file of one that was")
		return errors.Join(os.Remove(pidFile()), lock.Close())
	}
	fmt.Printf("stopping the fleet, process %d\n", pid)
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop process %d: %w", pid, err)
	}
	gone := func(context.Context) error {
		_, lock, err := lockPID()
		switch {
		case err != nil:
			return err
		case lock == nil:
			return fmt.Errorf("process %d still runs", pid)
		}
		return errors.Join(os.Remove(pidFile()), lock.Close())
	}
	err = harness.Await(ctx, downLimit, "the fleet is down", gone)
	if err == nil || ctx.Err() != nil {
		return err
	}
	killed := syscall.Kill(pid, syscall.SIGKILL)
	return errors.Join(fmt.Errorf("it was killed instead: %w", err), killed, harness.Await(ctx, downLimit, "the fleet is gone", gone))
}

// instructions are what to try with a fleet that is up.
func instructions(d *harness.Drill) string {
	kubectl := filepath.Join(os.Getenv(fleet.AssetsVariable), "kubectl")
	east := d.Fleet.Member("east").PIDs().APIServer
	hub := d.Hubs()[0].PID()
	return fmt.Sprintf(`
The fleet is up: hub, east (100), west (50), south (10). Try, in this folder:

  alias k=%s
  k --kubeconfig out/hub.kubeconfig get namespaceleaders --watch      # who leads, and why
  k --kubeconfig out/hub.kubeconfig get leadershippolicy drill -o yaml
  k --kubeconfig out/hub.kubeconfig get clusters -L leasecast.dev/priority
  k --kubeconfig out/east.kubeconfig get leases -n shop -o yaml        # what a controller in east reads
  k --kubeconfig out/hub.kubeconfig label cluster south leasecast.dev/priority=200 --overwrite
  kill -STOP %d; kill -CONT %[2]d          # pause east's API server, and resume it
  kill %d                               # stop the hub: it starts again after %s
  kill -STOP %[3]d; sleep 10; kill -CONT %[3]d   # pause the hub: every term ends; it begins again, as the same process
  tail -f %[5]s                           # restarts of hub and guestbooks, with their processes
  tail -f out/up/*.acts                       # what the guestbooks do

make down stops it.
`, kubectl, east, hub, harness.KubeletLike.First, serveLog())
}

package main

import (
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
	"github.com/leasecast/leasecast/e2e/lines"
)

const (
	// serveArg makes the demo the process that owns a fleet which was left running.
	serveArg = "serve"
	// ready is the last line of the server's progress.
	ready = "ready"
	// upLimit bounds the start.
	upLimit = 10 * time.Minute
	// downLimit bounds an orderly end; then the server is killed, and the kernel kills what it started.
	downLimit = time.Minute
)

func pidFile() string  { return filepath.Join(outDir, "up.pid") }
func serveLog() string { return filepath.Join(outDir, "up.log") }

// up starts a server for the fleet, which outlives this process. It prints the server's progress until the fleet is
// ready.
func up(ctx context.Context) error {
	if err := os.MkdirAll(outDir, 0o755); err != nil {
		return err
	}
	pid, lock, err := lockPID()
	if err != nil {
		return err
	}
	if lock == nil {
		return fmt.Errorf("the fleet is up already, as process %d: `make down` stops it", pid)
	}
	self, err := os.Executable()
	log, logErr := os.Create(serveLog())
	if err := errors.Join(err, logErr, lock.Close()); err != nil {
		return fmt.Errorf("start the fleet: %w", err)
	}
	defer func() { _ = log.Close() }()
	server := exec.Command(self, serveArg)
	server.Stdout, server.Stderr = log, log
	server.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no Ctrl-C of this terminal reaches it
	if err := server.Start(); err != nil {
		return fmt.Errorf("start the fleet: %w", err)
	}
	running, ended := context.WithCancelCause(ctx)
	go func() {
		err := server.Wait()
		ended(fmt.Errorf("the fleet did not come up (%w): see %s", err, serveLog()))
	}()
	progress, up := lines.Follow(serveLog()), false
	err = harness.Await(running, upLimit, "the fleet is up", func(context.Context) error {
		err := progress.News(func(line []byte) error {
			if up = up || string(line) == ready; !up {
				fmt.Println(string(line))
			}
			return nil
		})
		if err == nil && !up {
			err = errors.New("it is not")
		}
		return err
	})
	if err != nil {
		return errors.Join(err, server.Process.Signal(syscall.SIGTERM)) // it stops what it has started
	}
	return nil
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
	if err := lock.Truncate(0); err != nil {
		return err
	}
	_, err = lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	if err != nil {
		return err
	}
	n := newNarrator()
	d, err := harness.Start(ctx, cast("up", 5*time.Second, n.step))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Stop()) }()
	for _, namespace := range namespaces {
		in := func(a harness.Act) bool { return a.Namespace == namespace }
		a, err := d.AwaitAct(ctx, changeLimit, "a guestbook acts in "+namespace, in)
		if err != nil {
			return err
		}
		n.step(fmt.Sprintf("%s: the guestbook in %s acts", namespace, a.Cluster))
	}
	defer func() { // they lead nowhere any more
		for _, s := range d.Fleet.Servers() {
			err = errors.Join(err, os.Remove(filepath.Join(outDir, s.Name()+".kubeconfig")))
		}
	}()
	if err := d.Fleet.WriteKubeconfigs(outDir); err != nil {
		return err
	}
	fmt.Print(instructions(d) + ready + "\n")
	kept := d.Keep(ctx, n.step)
	<-ctx.Done()
	kept()
	return nil
}

// lockPID takes the lock of the pid file, which its owner holds as long as it lives. If another process holds
// it, the lock is nil and the pid is its.
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
		return 0, nil, fmt.Errorf("%s is locked but names no process: %q", pidFile(), text)
	}
	return pid, nil, nil
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
	return errors.Join(fmt.Errorf("it was killed instead: %w", err), killed,
		harness.Await(ctx, downLimit, "the fleet is gone", gone))
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

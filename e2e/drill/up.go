package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/lines"
	"github.com/leasecast/leasecast/e2e/must"
)

const (
	// serveArg makes this program the process that owns a fleet which was left running.
	serveArg = "serve"
	// ready is the last line of the server's progress.
	ready = "ready"
	// actLimit bounds the wait for the first acts.
	actLimit = time.Minute
	// upLimit bounds the start.
	upLimit = 10 * time.Minute
	// downLimit bounds an orderly end.
	downLimit = time.Minute
)

func pidFile() string  { return filepath.Join(outDir, "up.pid") }
func serveLog() string { return filepath.Join(outDir, "up.log") }

// up starts a server for the fleet, which outlives this process. It prints the server's progress until the fleet is
// ready.
func up(ctx context.Context) {
	must.Do(os.MkdirAll(outDir, 0o755))
	must.Do(lockPID().Close())
	log := must.Get(os.Create(serveLog()))
	defer func() { _ = log.Close() }()
	server := exec.Command(must.Get(os.Executable()), serveArg)
	server.Stdout, server.Stderr = log, log
	server.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no Ctrl-C of this terminal reaches it
	must.Do(server.Start())
	running, ended := context.WithCancelCause(ctx)
	go func() {
		ended(fmt.Errorf("the fleet did not come up (%w): see %s", server.Wait(), serveLog()))
	}()
	progress, up := lines.Follow(serveLog()), false
	err := must.Await(running, upLimit, "the fleet is up", func(context.Context) error {
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
		must.Do(errors.Join(err, server.Process.Signal(syscall.SIGTERM))) // it stops what it has started
	}
}

// serve owns the fleet until down or a signal stops it. It restarts hub and guestbooks when they end. They end with it,
// also when it is killed.
func serve(ctx context.Context) {
	lock := lockPID()
	defer func() { _ = errors.Join(os.Remove(pidFile()), lock.Close()) }() // in this order: the lock guards the name
	must.Do(lock.Truncate(0))
	must.Get(fmt.Fprintln(lock, os.Getpid()))
	n := harness.NewNarrator()
	d := must.Get(harness.Start(ctx, cast("up", 5*time.Second, n.Step)))
	err := must.Try(func() {
		for _, namespace := range namespaces {
			in := func(a harness.Act) bool { return a.Namespace == namespace }
			a := must.Get(d.AwaitAct(ctx, actLimit, "a guestbook acts in "+namespace, in))
			n.Step(fmt.Sprintf("%s: the guestbook in %s acts", namespace, a.Cluster))
		}
		must.Do(d.Fleet.WriteKubeconfigs(outDir))
		fmt.Print(instructions(d) + ready + "\n")
		kept := d.Keep(ctx, n.Step)
		<-ctx.Done()
		kept()
		for _, s := range d.Fleet.Servers() { // they lead nowhere any more
			must.Do(os.Remove(filepath.Join(outDir, s.Name()+".kubeconfig")))
		}
	})
	must.Do(errors.Join(err, d.Stop()))
}

// lockPID takes the lock of the pid file, which its owner holds as long as it lives.
func lockPID() *os.File {
	pid, lock := owner()
	if lock == nil {
		must.Fail("the fleet is up already, as process %d: `make down` stops it", pid)
	}
	return lock
}

// owner returns the process that has the lock of the pid file, or the lock if no process has it.
func owner() (pid int, lock *os.File) {
	lock = must.Get(os.OpenFile(pidFile(), os.O_RDWR|os.O_CREATE, 0o644))
	err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return 0, lock
	}
	defer func() { _ = lock.Close() }()
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		must.Do(err, "lock %s", pidFile())
	}
	if _, err := fmt.Fscan(lock, &pid); err != nil || pid <= 1 {
		must.Fail("%s is locked but names no process: %v", pidFile(), err)
	}
	return pid, nil
}

// down stops the fleet that is up, and returns when it is gone.
func down(ctx context.Context) {
	must.Do(os.MkdirAll(outDir, 0o755))
	pid, lock := owner()
	if lock != nil { // it never was, or its owner was killed and took everything along
		fmt.Println("the fleet is not up")
		must.Do(errors.Join(os.Remove(pidFile()), lock.Close()))
		return
	}
	fmt.Printf("stopping the fleet, process %d\n", pid)
	must.Do(syscall.Kill(pid, syscall.SIGTERM))
	must.Do(must.Await(ctx, downLimit, "the fleet is down", func(context.Context) error {
		return must.Try(func() {
			pid, lock := owner()
			must.FailIf(lock == nil, "process %d has not ended: kill -9 %d", pid, pid)
			must.Do(errors.Join(os.Remove(pidFile()), lock.Close())) // in this order: the lock guards the name
		})
	}))
}

// instructions are what to try with a fleet that is up.
func instructions(d *harness.Drill) string {
	kubectl := filepath.Join(os.Getenv(fleet.AssetsVariable), "kubectl")
	east := d.Fleet.Member("east").PIDs().APIServer
	hub := d.Hubs()[0].PID()
	return fmt.Sprintf(`
The fleet is up: hub, east (100), west (99), south (98). Try, in this folder:

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
`, kubectl, east, hub, harness.RestartAfter, serveLog())
}

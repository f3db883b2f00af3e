package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub"
)

// upTest is a fleet that a real `drill up` started, in a folder of its own.
type upTest struct {
	t            *testing.T
	dir, program string
	members      map[string]client.Client
	server       int // the process that owns the fleet
}

// TestTheFleetThatIsUpRestartsItsPrograms breaks the programs of a fleet that is up, as its instructions advise. Each
// time the program must run again, and the namespaces must be led again. Then down must leave no process behind.
func TestTheFleetThatIsUpRestartsItsPrograms(t *testing.T) {
	u := startUp(t)
	for program, processes := range map[string]int{"leasecast-hub": 1, "guestbook": 3} {
		old := u.find(program)[0]
		t.Logf("process %d of %s is killed", old, program)
		musttest.Do(t, syscall.Kill(old, syscall.SIGKILL))
		u.await(program+" is restarted", func() error {
			found := u.find(program)
			return must.ErrorIf(len(found) != processes || slices.Contains(found, old), "processes %v", found)
		})
		u.led()
	}

	started := u.children()
	u.down()
	for _, p := range started {
		u.await(fmt.Sprintf("process %d is gone", p.PID), func() error {
			stat, err := p.Stat()
			return must.ErrorIf(err == nil && stat.State != "Z", "it is %s", stat.Comm) // dead, if not reaped
		})
	}
}

func startUp(t *testing.T) *upTest {
	t.Helper()
	dir := folder(t)
	program := musttest.Get(harness.Program(t.Context(), "drill", "e2e/drill"))(t)
	u := &upTest{t: t, dir: dir, program: program, members: map[string]client.Client{}}
	t.Cleanup(u.down)
	t.Log(u.run(t.Context(), "up"))
	pid := musttest.Get(os.ReadFile(filepath.Join(dir, pidFile())))(t)
	u.server = musttest.Get(strconv.Atoi(strings.TrimSpace(string(pid))))(t)
	for _, m := range []string{"east", "west", "south"} {
		config := musttest.Get(clientcmd.BuildConfigFromFlags("", filepath.Join(dir, outDir, m+".kubeconfig")))(t)
		u.members[m] = musttest.Get(client.New(config, client.Options{Scheme: hub.Scheme()}))(t)
	}
	return u
}

// run runs the program in the folder.
func (u *upTest) run(ctx context.Context, args ...string) string {
	u.t.Helper()
	cmd := exec.CommandContext(ctx, u.program, args...)
	cmd.Dir = u.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		u.t.Fatalf("drill %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// down stops the fleet, if it is up. The context of the test may have ended.
func (u *upTest) down() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*downLimit)
	defer cancel()
	u.t.Log(u.run(ctx, "down"))
}

func (u *upTest) await(what string, condition func() error) {
	musttest.Eventually(u.t, time.Minute, what, func(context.Context) error { return condition() })
}

// led waits until a Lease in some member lets that member act in each namespace, renewed after the call.
func (u *upTest) led() {
	begin := harness.Now().Wall
	for _, namespace := range namespaces {
		u.await(namespace+" is led again", func() error {
			for name, c := range u.members {
				l := &coordinationv1.Lease{}
				if err := c.Get(u.t.Context(), client.ObjectKey{Namespace: namespace, Name: v1alpha1.DefaultLeaseName},
					l); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				if c, _ := wire.Read(l); c.LeadsHere() && c.RenewTime.After(begin) {
					return nil
				}
			}
			return errors.New("no Lease is renewed")
		})
	}
}

// find returns the processes of a program that the server started.
func (u *upTest) find(program string) (pids []int) {
	for _, p := range u.children() {
		if line, err := p.CmdLine(); err == nil && len(line) > 0 && filepath.Base(line[0]) == program {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// children are the processes that the server started.
func (u *upTest) children() (all []procfs.Proc) {
	for _, p := range musttest.Get(procfs.AllProcs())(u.t) {
		stat, err := p.Stat() // an error: it has ended
		if err == nil && stat.PPID == u.server && stat.State != "Z" {
			all = append(all, p)
		}
	}
	return all
}

package gate

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/e2e/process"
	"github.com/leasecast/leasecast/member/command"
)

var (
	serverLine = regexp.MustCompile(`server: .*`)
	servesLine = regexp.MustCompile(`"msg":"Serves /leader","address":"([^"]*)"`)
)

// stubborn acts in two processes, and heeds no SIGTERM.
const stubborn = `trap '' TERM; act() { while :; do date +%s%N >>"$0"; sleep 0.02; done; }; act & act`

func start(t *testing.T, args ...string) *process.Process {
	p := musttest.Get(process.Start("gate", filepath.Join(t.TempDir(), "log"), program,
		append([]string{"-kubeconfig=" + access}, args...)...))(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(p.Tail())
		}
		musttest.Do(t, p.Kill())
	})
	return p
}

// late is how late a busy machine may deliver SIGKILL, which the gate sends 100 ms before the deadline. The tests of
// member/command check that the gate sends it in time.
const late = time.Second

// After the last deadline nothing acts, whatever has happened to the hub or to the gate.
func TestTheProgramActsInItsTermsOnly(t *testing.T) {
	const short, long = 5 * time.Second, time.Minute
	cases := map[string]struct {
		first time.Duration // how long the term lasts before the fault: long where the program ends at once
		fault func(t *testing.T, ns string, gate *process.Process) (deadline time.Time)
	}{
		"the hub falls silent": {short, func(t *testing.T, ns string, _ *process.Process) time.Time {
			return write(t, ns, us, 1, short)
		}},
		"the gate is paused": {short, func(t *testing.T, ns string, gate *process.Process) time.Time {
			deadline := write(t, ns, us, 1, short)
			musttest.Do(t, gate.Pause())
			return deadline
		}},
		"the gate is killed": {long, func(t *testing.T, _ string, gate *process.Process) time.Time {
			musttest.Do(t, gate.Kill())
			return time.Now().Add(long / 6)
		}},
		"another cluster leads": {long, func(t *testing.T, ns string, _ *process.Process) time.Time {
			write(t, ns, them, 2, long)
			return time.Now().Add(long / 6)
		}},
		"the API server is gone": {short, func(t *testing.T, ns string, _ *process.Process) time.Time {
			deadline := write(t, ns, us, 1, short)
			musttest.Do(t, cluster.Kill())
			t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				musttest.Do(t, cluster.Restart(ctx))
			})
			return deadline
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ns, file := harness.NewNamespace(t, admin), filepath.Join(t.TempDir(), "acts")
			write(t, ns, them, 0, time.Minute)
			gate := start(t, "-namespace="+ns, "-register-in="+ns, "--", "sh", "-c", stubborn, file)
			await(t, "it acts", renewing(t, ns, 1, tc.first, actedAfter(t, file, time.Time{})))
			deadline := tc.fault(t, ns, gate)
			<-time.After(time.Until(deadline) + 3*late)
			all := acts(t, file)
			if last := all[len(all)-1]; last.After(deadline.Add(late)) {
				t.Errorf("it acts %v after the deadline", last.Sub(deadline))
			} else {
				t.Logf("the last of %d acts came %v before the deadline", len(all), deadline.Sub(last))
			}
			if err := gate.Resume(); err != nil && !errors.Is(err, process.ErrEnded) {
				t.Error(err)
			}
		})
	}
}

func TestSidecarsAndScriptsReadWhoLeads(t *testing.T) {
	ns := harness.NewNamespace(t, admin)
	address := addressOf(t, start(t, "-namespace="+ns, "-listen=127.0.0.1:0"))
	for epoch, step := range []struct {
		what, holder  string
		status, check int
	}{
		{"another cluster leads", them, http.StatusServiceUnavailable, command.LeadsNot},
		{"this cluster leads", us, http.StatusOK, command.Leads},
		{"nobody leads", "", http.StatusServiceUnavailable, command.LeadsNot},
	} {
		write(t, ns, step.holder, int64(epoch), time.Minute)
		await(t, step.what, func(ctx context.Context) error {
			asks := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/leader", nil))
			resp, err := http.DefaultClient.Do(asks)
			must.Do(err)
			must.Do(resp.Body.Close())
			return must.ErrorIf(resp.StatusCode != step.status, "status %d", resp.StatusCode)
		})
		if code := check(t, access, ns, patience); code != step.check {
			t.Errorf("%s: check exits with %d, want %d", step.what, code, step.check)
		}
	}
	nowhere := filepath.Join(t.TempDir(), "kubeconfig")
	text := musttest.Get(os.ReadFile(access))(t)
	unreachable := serverLine.ReplaceAllString(string(text), "server: https://127.0.0.1:1")
	musttest.Do(t, os.WriteFile(nowhere, []byte(unreachable), 0o600))
	if code := check(t, nowhere, ns, 3*time.Second); code != command.CannotTell {
		t.Errorf("check of an API server that is not there exits with %d, want %d", code, command.CannotTell)
	}
}

// addressOf is where a gate serves /leader, as its log says.
func addressOf(t *testing.T, gate *process.Process) (address string) {
	await(t, "the gate serves", func(context.Context) error {
		log := must.Get(os.ReadFile(gate.Log()))
		found := servesLine.FindSubmatch(log)
		if found == nil {
			return errors.New("its log has no address")
		}
		address = string(found[1])
		return nil
	})
	return address
}

func check(t *testing.T, kubeconfig, ns string, timeout time.Duration) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, "check",
		"-kubeconfig="+kubeconfig, "-namespace="+ns, "-timeout="+timeout.String())
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	t.Logf("check says: %s", out)
	return cmd.ProcessState.ExitCode()
}

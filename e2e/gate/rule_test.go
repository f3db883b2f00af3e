package gate

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/process"
)

// acting asks the rule in a loop and acts while it holds. Its arguments: namespace, file of acts, file of refusals.
const acting = `
while :; do
  if leads "$1"; then date +%s%N >>"$2"; else date +%s%N >>"$3"; fi
  sleep 0.1
done
`

// rule is the shell function in the README of the member library.
func rule(t *testing.T) string {
	t.Helper()
	text := harness.Get(os.ReadFile("../../member/README.md"))(t)
	found := regexp.MustCompile("(?ms)^```sh\n(leads\\(\\).*?)^```$").FindSubmatch(text)
	if found == nil {
		t.Fatal("member/README.md has no function leads in a snippet of sh")
	}
	return string(found[1])
}

// What people copy out of the README obeys the reader's rule, with nothing but kubectl.
func TestTheRuleInShellActsInItsTermsOnly(t *testing.T) {
	ns, dir := namespace(t), t.TempDir()
	script, yes, no := filepath.Join(dir, "script"), filepath.Join(dir, "yes"), filepath.Join(dir, "no")
	harness.Must(t, os.WriteFile(script, []byte(rule(t)+acting), 0o600))
	t.Setenv("KUBECONFIG", access)
	t.Setenv("PATH", os.Getenv("KUBEBUILDER_ASSETS")+":"+os.Getenv("PATH"))
	p := harness.Get(process.Start("script", filepath.Join(dir, "log"), "bash", script, ns, yes, no))(t)
	t.Cleanup(func() { harness.Must(t, p.Kill()) })
	refuses := func(what string) { // two answers, so that one of them was asked for now
		for range 2 {
			await(t, what, actedAfter(t, no, time.Now()))
		}
	}
	none := func(what string, since time.Time) {
		t.Helper()
		if all := acts(t, yes); len(all) > 0 && all[len(all)-1].After(since) {
			t.Errorf("%s: it acts %v later", what, all[len(all)-1].Sub(since))
		}
	}

	refuses("no Lease")
	write(t, ns, them, 1, time.Minute)
	refuses("another cluster leads")
	write(t, ns, "", 2, time.Minute)
	refuses("nobody leads")
	none("nobody led here yet", time.Time{})

	await(t, "this cluster leads", renewing(t, ns, 3, 5*time.Second, actedAfter(t, yes, time.Time{})))
	deadline := write(t, ns, us, 3, 5*time.Second)
	refuses("the hub is lost")
	<-time.After(time.Until(deadline))
	refuses("the hub is lost for good")
	none("the hub is lost", deadline)

	write(t, ns, us, 3, time.Hour)
	await(t, "the hub is back", actedAfter(t, yes, time.Now()))
	snapshot := harness.Get(cluster.Snapshot(t.Context()))(t)
	write(t, ns, them, 4, time.Hour)
	refuses("failed over")
	moved := time.Now()
	refuses("failed over for some time")
	harness.Must(t, cluster.Restore(t.Context(), snapshot))
	refuses("the member is restored from a snapshot of when it led")
	none("another cluster leads since epoch 4", moved)
}

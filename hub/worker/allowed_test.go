package worker

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/hub/guard"
)

// Another replica is elected in the middle of a turn. From then on nothing is written to the member, whatever is left to do.
func TestAWorkerWritesNothingOnceItsHubMayNotWrite(t *testing.T) {
	for name, test := range map[string]struct {
		wanted  []guard.Fence
		kept    bool // before, and so is the guard
		happens func(*fenced)
		first   string // the write in the middle of which the right is lost
	}{
		"the guard is put in place":   {nil, false, func(*fenced) {}, "POST /validatingadmissionpolicies"},
		"its binding is put in place": {nil, false, func(*fenced) {}, "POST /validatingadmissionpolicybindings"},
		"an edit of a fence is mended": {
			[]guard.Fence{ofJobs("shops", "once")}, true, func(f *fenced) { f.east.loses("policies/shops.fleet") }, "POST /validatingadmissionpolicies",
		},
		"a fence is another now": {[]guard.Fence{ofJobs("shops", "once")}, true, func(f *fenced) {
			f.wanted = []guard.Fence{ofJobs("shops", "twice")}
		}, "DELETE /validatingadmissionpolicybindings"},
		"CronJobs are woken": {[]guard.Fence{jobsOf("")}, true, func(f *fenced) {
			f.cronJobs(rigStart.Wall.Add(-time.Hour), "bill", "till")
		}, "PATCH /cronjobs"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFenced(t, test.wanted...)
				if test.kept {
					f.kept()
				}
				f.will(func(*rig) { test.happens(f) })
				lost, after := false, []string{}
				f.mute = func(req *http.Request) *metav1.Status {
					if req.Method == http.MethodGet || req.URL.Query().Get("dryRun") != "" {
						return nil
					}
					what := req.Method + " " + req.URL.Path
					if lost && !strings.Contains(what, "/leases") { // of which a publisher asks by itself
						after = append(after, what)
					}
					method, resource, _ := strings.Cut(test.first, " ")
					if req.Method == method && strings.Contains(req.URL.Path, resource) && !lost {
						lost = true
						f.mu.Lock()
						f.standby = true
						f.mu.Unlock()
					}
					return nil
				}
				defer f.runs(f.Run)()
				pass(time.Minute)
				if !lost || len(after) > 0 {
					t.Errorf("the right is lost: %v; then it wrote %q", lost, after)
				}
			})
		})
	}
}

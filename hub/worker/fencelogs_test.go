package worker

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// logs collects what the worker logs from now on.
func (f *fenced) logs() *[]string {
	lines := &[]string{}
	f.Log = funcr.New(func(_, line string) { *lines = append(*lines, line) }, funcr.Options{})
	return lines
}

// answersAbout has the member answer what it is asked of fences of these policies.
func (f *fenced) answersAbout(status *metav1.Status, policies ...string) {
	f.will(func(*rig) {
		f.mute = func(req *http.Request) *metav1.Status {
			if slices.ContainsFunc(policies, func(p string) bool { return strings.Contains(req.URL.Path, "/"+p+".fleet.") }) {
				return status
			}
			return nil
		}
	})
}

func TestWhatIsLoggedOfACheckThatIsNews(t *testing.T) {
	refused := failure(http.StatusForbidden, metav1.StatusReasonForbidden)
	for name, test := range map[string]struct {
		change func(*fenced)
		want   string
	}{
		"all are in force":           {func(*fenced) {}, `"fences"=2 "underWay"=false "refused"=false`},
		"one is not in force yet":    {func(f *fenced) { f.open = f.wanted[0].Names() }, `"fences"=2 "underWay"=true "refused"=false`},
		"the member refuses the one": {func(f *fenced) { f.answersAbout(refused, "shops") }, `"fences"=2 "underWay"=false "refused"=true`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFenced(t, ofJobs("shops", "once"), ofJobs("tills", "once"))
				lines := f.logs()
				test.change(f)
				end := f.runs(f.keepFences)
				pass(3 * time.Second)
				end()
				if want := []string{`"level"=0 "msg"="The fences of the cluster were checked" ` + test.want}; !slices.Equal(*lines, want) {
					t.Errorf("logged are %q, want %q", *lines, want)
				}
			})
		})
	}
}

// It is logged once until the member answers again, with all fences that it is silent about.
func TestASilenceAboutFencesIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFenced(t, ofJobs("shops", "once"), ofJobs("tills", "once"))
		f.kept()
		lines := f.logs()
		defer f.runs(f.keepFences)()
		for i := range 2 {
			f.answersAbout(failure(http.StatusInternalServerError, metav1.StatusReasonInternalError), "shops", "tills")
			pass(2 * guardEvery)
			if len(*lines) != i+1 {
				t.Fatalf("in silence %d logged are %q", i, *lines)
			}
			line := (*lines)[i]
			shops, tills := strings.Index(line, "shops.fleet."), strings.Index(line, "tills.fleet.")
			if !strings.HasPrefix(line, `"msg"="Fences of the cluster cannot be checked, and stay as they are"`) || shops < 0 || tills < shops {
				t.Errorf("logged is %q", line)
			}
			f.answersAbout(nil)
			pass(2 * guardEvery)
		}
	})
}

package worker

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/leasecast/leasecast/hub/guard"
)

// cronJobs are some in namespace shop, which were scheduled last at some instant.
func (r *rig) cronJobs(last time.Time, names ...string) {
	for _, name := range names {
		o := batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, CreationTimestamp: metav1.NewTime(rigStart.Wall.Add(-time.Hour))}}
		o.Status.LastScheduleTime = &metav1.Time{Time: last}
		r.east.storeCronJob(&o)
	}
}

// cronJobPath is that of a CronJob in namespace shop.
const cronJobPath = "/apis/batch/v1/namespaces/shop/cronjobs/"

// storeCronJob keeps one in namespace shop.
func (a *memberAPI) storeCronJob(o *batchv1.CronJob) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		panic(err)
	}
	a.shows(func(a *memberAPI) { a.put(cronJobPath+o.Name, &unstructured.Unstructured{Object: object}) })
}

// cronJob returns one as it is kept.
func (a *memberAPI) cronJob(name string) (o batchv1.CronJob) {
	a.shows(func(a *memberAPI) {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(a.stored[cronJobPath+name].Object, &o); err != nil {
			panic(err)
		}
	})
	return o
}

// One that is gone needs nothing any more, and the others do.
func TestWhatBecomesOfACronJobThatCannotBeWoken(t *testing.T) {
	for name, test := range map[string]struct {
		answer *metav1.Status
		woken  bool // all that there are
		asked  []string
	}{
		"it is woken":                 {nil, true, []string{"bill", "till"}},
		"it is gone":                  {failure(http.StatusNotFound, metav1.StatusReasonNotFound), true, []string{"bill", "till"}},
		"somebody has changed it":     {failure(http.StatusConflict, metav1.StatusReasonConflict), false, []string{"bill"}},
		"the member forbids it":       {failure(http.StatusForbidden, metav1.StatusReasonForbidden), false, []string{"bill"}},
		"the member does not respond": {failure(http.StatusInternalServerError, metav1.StatusReasonInternalError), false, []string{"bill"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				var asked []string
				r.east.refuses(func(req *http.Request) *metav1.Status {
					if req.Method != http.MethodPatch {
						return nil
					}
					asked = append(asked, strings.Split(req.URL.Path, "/")[7])
					return test.answer
				})
				r.cronJobs(rigStart.Wall.Add(-time.Hour), "bill", "till")
				err := r.observer.wakeCronJobs(t.Context(), "shop", &metav1.LabelSelector{}, rigStart.Wall)
				if (err == nil) != test.woken {
					t.Errorf("woken: %v", err)
				}
				if slices.Sort(asked); len(asked) != len(test.asked) || test.woken && !slices.Equal(asked, test.asked) {
					t.Errorf("asked were %q, want %q", asked, test.asked)
				}
			})
		})
	}
}

// Another replica may be at work already.
func TestACronJobIsNotWokenWithoutTheRightToWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		written := r.counts(http.MethodPatch, "/status")
		r.cronJobs(rigStart.Wall.Add(-time.Hour), "bill")
		ctx := guard.WhileAllowed(t.Context(), func() bool { return false })
		if err := r.observer.wakeCronJobs(ctx, "shop", &metav1.LabelSelector{}, rigStart.Wall); err == nil || len(*written) > 0 {
			t.Errorf("%v; written at %v", err, *written)
		}
	})
}

// A status has whole seconds, and a term begins at any time.
func TestACronJobThatWasWokenIsNotWrittenAgain(t *testing.T) {
	for name, began := range map[string]time.Time{"at a whole second": rigStart.Wall, "at any time": rigStart.Wall.Add(1500 * time.Millisecond)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				written := r.counts(http.MethodPatch, "/status")
				r.cronJobs(began.Add(-time.Microsecond).Truncate(time.Second), "bill")
				term := fencedTerm{"fence", "shop", began.UnixMicro()}
				if is := r.observer.wakeTerm(t.Context(), term, &metav1.LabelSelector{}, waking{times: 1}); is.times != 2 || len(*written) > 0 {
					t.Errorf("it is %+v, and was written at %v", is, *written)
				}
			})
		})
	}
}

// No CronJob can be chosen by such labels, so none is woken.
func TestALabelThatNothingCanHaveWakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.east.refuses(func(req *http.Request) *metav1.Status {
			t.Errorf("asked: %s", req.URL)
			return nil
		})
		odd := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "run", Operator: "Like"}}}
		if err := r.observer.wakeCronJobs(t.Context(), "shop", odd, rigStart.Wall); err == nil {
			t.Errorf("it is woken: %v", err)
		}
	})
}

package controller

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/seal"
	"github.com/leasecast/leasecast/hub/tenure"
)

// The next decision comes at the first instant at which anything may change by time alone.
func TestWhenANamespaceIsDecidedOnAgain(t *testing.T) {
	type change = func(*Controller, *fakeMembers, testAPI)
	answers := func(err error) change {
		return func(c *Controller, _ *fakeMembers, api testAPI) {
			c.Client = refusing(api, &err, "create", "update", "status")
		}
	}
	conflict := apierrors.NewConflict(recordResource, "shop", errRefused)
	exists := apierrors.NewAlreadyExists(recordResource, "shop")
	health := func(next time.Duration) change {
		return func(_ *Controller, f *fakeMembers, _ testAPI) { f.verdict.Next = next }
	}
	// The bound of what the last tenure may have promised passes in half a second, before the status is due, or later.
	bound := func(health, later time.Duration) change {
		return func(c *Controller, f *fakeMembers, api testAPI) {
			c.Tenure, f.verdict.Next = succeeding(t, testStart, 6*time.Second, later-70500*time.Millisecond), health
			changeStored(t, api, recordOf("fleet", "shop"), func(o *v1alpha1.NamespaceLeader) {
				o.Spec.State, o.Spec.Reason = v1alpha1.StateEnding, "PriorityChanged"
			})
		}
	}
	// The status of a record that is written now is due after a second, and refused then.
	unshown := func(write change) change {
		return func(c *Controller, f *fakeMembers, api testAPI) {
			write(c, f, api)
			_, err := c.reconcileNamespace(t.Context(), aboutShop)
			musttest.Do(t, err)
			c.Clock, c.Client = aSecondLater, failing(api, "status")
		}
	}
	// Another decision on a large record without a policy was made some time ago.
	large := func(bytes int, policy bool, ago time.Duration) change {
		return func(c *Controller, _ *fakeMembers, api testAPI) {
			c.large.AllowN(testStart.Wall.Add(-ago), 1)
			changeStored(t, api, recordOf("fleet", "shop"), func(o *v1alpha1.NamespaceLeader) {
				o.Labels = map[string]string{"team": strings.Repeat("x", bytes)}
			})
			if !policy {
				musttest.Do(t, api.Delete(t.Context(), policyOf("fleet", "shops", "shop")))
			}
		}
	}
	for name, test := range map[string]struct {
		change change
		want   time.Duration
		fails  bool
	}{
		"a large record that no policy claims":            {large(16<<10, false, 0), notYet, false},
		"a large record that no policy claims, 1 s later": {large(16<<10, false, time.Second), rightAway, false},
		"a small record that no policy claims":            {large(1, false, 0), rightAway, false},
		"a large record that a policy claims":             {large(16<<10, true, 0), rightAway, false},
		"the tenure does not hold": {func(c *Controller, _ *fakeMembers, _ testAPI) {
			c.Tenure = tenure.New(fixedClock(testStart), time.Second)
		}, notYet, false},
		"another client wrote the record":   {answers(conflict), rightAway, false},
		"another client created the record": {answers(exists), rightAway, false},
		"the write fails":                   {answers(errRefused), 0, true},
		"the record cannot be read": {
			func(c *Controller, _ *fakeMembers, api testAPI) { c.Live = failing(api, "get") }, 0, true,
		},
		"a health changes before all else":       {health(time.Millisecond), time.Millisecond, false},
		"a health changes after all else":        {health(time.Hour), rightAway, false},
		"a bound passes":                         {bound(0, 0), time.Second / 2, false},
		"a health changes before a bound passes": {bound(time.Second/4, 0), time.Second / 4, false},
		"a record that stays has yet to be explained": {func(c *Controller, _ *fakeMembers, _ testAPI) {
			_, _ = c.reconcileNamespace(t.Context(), aboutShop)
		}, time.Second, false},
		"the status cannot be written":                          {unshown(health(0)), retrySlowest, false},
		"a bound passes soon, and the status cannot be written": {unshown(bound(0, time.Second)), time.Second / 2, false},
		"a health changes soon, and the status cannot be written": {
			unshown(health(time.Millisecond)), time.Millisecond, false,
		},
		"each request has a deadline": {func(c *Controller, _ *fakeMembers, api testAPI) {
			c.Client, c.Live, c.Seals = bounded(api), bounded(api), seal.NewStore(bounded(api), bounded(api))
		}, rightAway, false},
	} {
		c, f, api := newTestHub(t)
		f.shown[0].Priority, f.verdict.Answering = 5, true
		test.change(c, f, api)
		got, err := c.reconcileNamespace(t.Context(), aboutShop)
		if (err != nil) != test.fails || got.RequeueAfter != test.want {
			t.Errorf("%s: again in %v, %v; want %v, an error: %v", name, got.RequeueAfter, err, test.want, test.fails)
		}
	}
}

// A cluster that was never read may have a Lease of a namespace that has ended. Once it is read, all namespaces of the
// fleet that matter are enqueued.
func TestNamespaceThatHasEndedWaitsForAClusterWithoutReadsOfItsRecord(t *testing.T) {
	ended := types.NamespacedName{Namespace: "fleet", Name: "ended"}
	for name, test := range map[string]struct {
		recorded bool // without a policy
		want     time.Duration
	}{
		"there is no record":                 {false, 0},
		"there is one, of an unknown policy": {true, notYet},
	} {
		c, f, api := newTestHub(t)
		f.shown = append(f.shown, fleet.Member{Key: westKey})
		if test.recorded {
			musttest.Do(t, api.Create(t.Context(), recordOf("fleet", "ended")))
		}
		if got, err := c.reconcileNamespace(t.Context(), requestOf(ended)); err != nil || got.RequeueAfter != test.want {
			t.Errorf("%s: again in %v, %v; want %v", name, got.RequeueAfter, err, test.want)
		}
	}
}

// A status that the hub's API server does not take in time holds up no decision, and a log says so.
func TestStatusThatHangsHoldsUpNoDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, f, api := newTestHub(t)
		f.shown[0].Priority, f.verdict.Answering = 5, true
		_, err := c.reconcileNamespace(t.Context(), aboutShop)
		musttest.Do(t, err)
		c.Clock = aSecondLater // the status is due
		c.Client = checked(api, func(ctx context.Context, verb string, _ runtime.Object) error {
			if verb == "status" {
				<-ctx.Done()
			}
			return ctx.Err()
		})
		logged := ""
		ctx := log.IntoContext(t.Context(), funcr.New(func(_, line string) { logged += line }, funcr.Options{}))
		began := time.Now()
		_, err = c.reconcileNamespace(ctx, aboutShop)
		if took := time.Since(began); err != nil || took != 2*time.Second || !strings.Contains(logged, "deadline exceeded") {
			t.Errorf("after %v: %v, logged %q", took, err, logged)
		}
	})
}

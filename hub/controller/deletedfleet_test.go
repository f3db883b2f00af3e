package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// A fleet's namespace that is deleted takes its records with it, and nothing can be created there.
func TestNamespacesOfADeletedFleetAreForgotten(t *testing.T) {
	gone := apierrors.NewNotFound(corev1.Resource("namespaces"), "fleet")
	ends := apierrors.NewForbidden(recordResource, "shop", errRefused)
	ends.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	undefined, bare := apierrors.NewNotFound(recordResource, "shop"), apierrors.NewNotFound(recordResource, "shop")
	bare.ErrStatus.Details = nil
	forbidden := apierrors.NewForbidden(corev1.Resource("namespaces"), "fleet", errRefused)
	for name, test := range map[string]struct {
		answers        []error // to the creation of the record, one for each decision
		policy, closed bool    // closed: all that was promised has passed
		fails, known   bool    // after the last decision
	}{
		"the namespace is gone":                    {answers: []error{gone}, closed: true},
		"the namespace is being deleted":           {answers: []error{ends}, closed: true},
		"it is gone, and a promise has not passed": {answers: []error{gone, gone}, known: true},
		"it is gone, and a policy is cached":       {answers: []error{gone}, policy: true, closed: true, known: true},
		"the definition of records is gone":        {answers: []error{undefined}, closed: true, fails: true, known: true},
		"it is not known what is gone":             {answers: []error{bare}, closed: true, fails: true, known: true},
		"the namespace must not be read":           {answers: []error{forbidden}, closed: true, fails: true, known: true},
	} {
		t.Run(name, func(t *testing.T) {
			c, f, api := newTestHub(t)
			f.shown[0].Priority, f.verdict.Answering = 5, true
			if !test.closed { // the last tenure may have promised a minute, half a minute ago
				c.Tenure = succeeding(t, testStart, 6*time.Second, -36*time.Second)
			}
			_ = musttest.Get(c.reconcileNamespace(t.Context(), aboutShop))(t)
			record := recordOf("fleet", "shop")
			musttest.Do(t, api.Get(t.Context(), shop, record))
			musttest.Do(t, api.Delete(t.Context(), record))
			c.ledger.Show(record, true)
			if !test.policy {
				musttest.Do(t, api.Delete(t.Context(), policyOf("fleet", "shops", "shop")))
			}
			c.moves.of[shop] = "shops" // a planned change is under way
			var again reconcile.Result
			var err error
			for _, answer := range test.answers {
				c.Client = refusing(api, &answer, "create")
				again, err = c.reconcileNamespace(t.Context(), aboutShop)
			}
			if (err != nil) != test.fails {
				t.Errorf("error %v, want one: %v", err, test.fails)
			}
			if counts := c.moves.of[shop] != ""; counts != test.known {
				t.Errorf("the change counts: %v, want %v", counts, test.known)
			}
			known, waits := c.ledger.Knows(shop), again.RequeueAfter > 0
			if known != test.known || waits != (test.known && !test.fails) {
				t.Errorf("known %v, again in %v; want it known: %v", known, again.RequeueAfter, test.known)
			}
		})
	}
}

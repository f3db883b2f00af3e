package integration

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must"
)

// drain drains a Cluster until an instant, as kubectl annotate does; empty: no longer.
func (w *world) drain(cluster, until string) {
	w.editCluster(cluster, func(c *clusterv1.Cluster) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, v1alpha1.DrainUntilAnnotation, until)
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, v1alpha1.DrainReasonAnnotation, "an upgrade")
		if until == "" {
			delete(c.Annotations, v1alpha1.DrainUntilAnnotation)
		}
	})
}

// awaitHistory waits until the history of a record shows why the last term ended, in an operator's words.
func (w *world) awaitHistory(namespace string, why reason.Reason, words string) {
	w.Eventually("the history says why the last term ended", soon, func() error {
		r, err := w.Record(namespace)
		if err != nil {
			return err
		}
		h := r.Status.History
		return must.ErrorIf(len(h) < 2 || h[1].Reason != why || h[1].Message != words, "it says %+v", h)
	})
}

// inAnHour is an instant as people write it.
func inAnHour() string { return time.Now().Add(time.Hour).UTC().Format(time.RFC3339) }

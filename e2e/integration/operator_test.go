package integration

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
)

// annotate sets or, with an empty value, removes an annotation of a record, as kubectl annotate does.
func (w *world) annotate(namespace, key, value string) {
	record := &v1alpha1.NamespaceLeader{ObjectMeta: w.inFleet(namespace)}
	harness.Edit(w.T, w.Hub, record, func(r *v1alpha1.NamespaceLeader) {
		metav1.SetMetaDataAnnotation(&r.ObjectMeta, key, value)
		if value == "" {
			delete(r.Annotations, key)
		}
	})
}

// order orders to move a namespace; empty: no longer.
func (w *world) order(namespace, to string) { w.annotate(namespace, v1alpha1.MoveToAnnotation, to) }

// freeze freezes a record until an instant; empty: no longer.
func (w *world) freeze(namespace, until string) {
	w.annotate(namespace, v1alpha1.FrozenUntilAnnotation, until)
}

// editPolicy edits the spec of a policy.
func (w *world) editPolicy(name string, edit func(*v1alpha1.LeadershipPolicySpec)) {
	policy := &v1alpha1.LeadershipPolicy{ObjectMeta: w.inFleet(name)}
	harness.Edit(w.T, w.Hub, policy, func(p *v1alpha1.LeadershipPolicy) { edit(&p.Spec) })
}

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

// setPriority edits the priority label of a Cluster.
func (w *world) setPriority(cluster, priority string) {
	w.editCluster(cluster, func(c *clusterv1.Cluster) {
		metav1.SetMetaDataLabel(&c.ObjectMeta, v1alpha1.PriorityLabel, priority)
	})
}

// removePriority removes the label.
func (w *world) removePriority(cluster string) {
	w.editCluster(cluster, func(c *clusterv1.Cluster) { delete(c.Labels, v1alpha1.PriorityLabel) })
}

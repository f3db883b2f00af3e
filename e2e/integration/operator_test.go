package integration

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must"
)

// order orders to move a namespace, as kubectl annotate does.
func (w *world) order(namespace, to string) {
	o := &v1alpha1.NamespaceLeader{ObjectMeta: metav1.ObjectMeta{Namespace: w.Fleet, Name: namespace}}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q,%q:"the database is there"}}}`,
		v1alpha1.MoveToAnnotation, to, v1alpha1.MoveReasonAnnotation)
	w.Must(w.Hub.Patch(w.T.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// editPolicy edits the spec of a policy.
func (w *world) editPolicy(name string, edit func(*v1alpha1.LeadershipPolicySpec)) {
	p := &v1alpha1.LeadershipPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.Fleet, Name: name}}
	w.Must(w.Hub.Get(w.T.Context(), client.ObjectKeyFromObject(p), p))
	base := p.DeepCopy()
	edit(&p.Spec)
	w.Must(w.Hub.Patch(w.T.Context(), p, client.MergeFrom(base)))
}

// noOrder takes an order back.
func (w *world) noOrder(namespace string) {
	o := &v1alpha1.NamespaceLeader{ObjectMeta: metav1.ObjectMeta{Namespace: w.Fleet, Name: namespace}}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, v1alpha1.MoveToAnnotation)
	w.Must(w.Hub.Patch(w.T.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))))
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

// freeze freezes a policy or a record until an instant, as kubectl annotate does; empty: no longer.
func (w *world) freeze(o client.Object, until string) {
	w.Must(w.Hub.Get(w.T.Context(), client.ObjectKeyFromObject(o), o))
	base := o.DeepCopyObject().(client.Object)
	annotations := map[string]string{v1alpha1.FrozenReasonAnnotation: "an incident"}
	if until != "" {
		annotations[v1alpha1.FrozenUntilAnnotation] = until
	}
	o.SetAnnotations(annotations)
	w.Must(w.Hub.Patch(w.T.Context(), o, client.MergeFrom(base)))
}

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

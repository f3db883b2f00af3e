package integration

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

func TestADrainedClusterHandsOverWhatItLeadsAndTakesNothingBack(t *testing.T) {
	t.Parallel()
	w, a, epoch := eastLeads(t, brief)

	w.drain("west", inAnHour())
	w.awaitUnfit("west", a, reason.Drained, "an upgrade", "gets no namespace")
	last := w.follow("east", a)
	w.drain("east", inAnHour())
	w.handedOver(a, "south", epoch, last, all...)
	w.awaitHistory(a, reason.Drained, "an upgrade")

	j := w.keeps("south", a)
	w.drain("south", inAnHour()) // no other cluster may lead
	w.awaitUnfit("south", a, reason.Drained, "goes on where no other cluster may lead")
	j.outlive()
	w.drain("south", "")
	w.drain("east", "")
	w.awaitEligible("east", a)
	j.outlive()
	j.check()
}

func TestADrainThatEndsByItsInstantOrCannotBeReadHasNoEffect(t *testing.T) {
	t.Parallel()
	w, a, _ := eastLeads(t, brief)
	j := w.keeps("east", a)
	w.drain("west", time.Now().Add(4*time.Second).UTC().Format(time.RFC3339))
	w.awaitUnfit("west", a, reason.Drained)
	w.awaitEligible("west", a)
	w.drain("east", "tomorrow")
	w.awaitEvent("east", reason.InvalidDrain, `"tomorrow"`, "set it to an instant")
	j.outlive()
	j.check()
}

// A policy's planned changes are under way in so many namespaces at once.
func TestDrainedNamespacesMoveAFewAtATime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brief, three)
	const most, namespaces = 2, 6
	var names []string
	for n := range namespaces {
		names = append(names, w.namespace(fmt.Sprint("n", n), all...))
	}
	p := w.NewPolicy("p", names...)
	p.Spec.MaxConcurrentMoves = most
	w.Must(w.Hub.Create(t.Context(), p))
	w.startHub()
	for _, name := range names {
		w.Leads("east", name, firstElection, all...)
	}
	w.drain("east", inAnHour())
	atOnce := 0
	w.Eventually("west leads all of them", namespaces*w.ordered(), func() error {
		var records v1alpha1.NamespaceLeaderList
		must.Do(w.Hub.List(t.Context(), &records, client.InNamespace(w.Fleet)))
		moved, moving := 0, 0
		for _, r := range records.Items {
			switch {
			case r.Spec.State == v1alpha1.StateDraining:
				moving++
			case r.Spec.Leader == "west":
				moved++
			}
		}
		atOnce = max(atOnce, moving)
		return must.ErrorIf(moved < namespaces, "it leads %d", moved)
	})
	if atOnce > most || atOnce == 0 {
		t.Errorf("%d moved at once, %d may", atOnce, most)
	}
}

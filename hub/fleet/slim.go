package fleet

import (
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

const (
	// maxLabels bounds the labels of a Cluster that are kept, in bytes. Of one with more, the priority alone counts.
	maxLabels = 16 << 10
	// maxAnnotation bounds each annotation that is kept. No UID or proof is longer.
	maxAnnotation = 1 << 10
)

// SlimCluster drops from a Cluster what the hub does not read, before a cache keeps it. A tenant can fill each Cluster
// with a megabyte, so what is kept of one has a bound. So nobody may update a Cluster from a cache: patch
// it. Objects of other types stay as they are.
func SlimCluster(o any) (any, error) {
	c, ok := o.(*clusterv1.Cluster)
	if !ok {
		return o, nil
	}
	slim := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{
		Namespace: c.Namespace, Name: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion,
		CreationTimestamp: c.CreationTimestamp, DeletionTimestamp: c.DeletionTimestamp,
		Annotations: slimAnnotations(c.Annotations),
	}}
	slim.Labels, slim.Spec.Paused = slimLabels(c.Labels), c.Spec.Paused
	if !readSpec(c, nil).keeps() { // it takes no part: nothing of ours is there but such a label, perhaps
		maps.DeleteFunc(slim.Labels, func(name, value string) bool { return !showsLeader(name, value) })
		if len(slim.Labels) == 0 {
			slim.Labels = nil
		}
	}
	return slim, nil
}

// Selectable returns the labels of a Cluster by which policies select it: those that show who leads are left out, or
// who leads would depend on who leads. The caller must not change them.
func Selectable(all map[string]string) map[string]string {
	for name, value := range all {
		if showsLeader(name, value) {
			all = maps.Clone(all)
			maps.DeleteFunc(all, showsLeader)
			break
		}
	}
	return all
}

// showsLeader reports whether a label is one of publish.clusterLabels.
func showsLeader(name, _ string) bool { return strings.HasPrefix(name, v1alpha1.LeaderLabelPrefix) }

// slimAnnotations are those that the hub reads. The marks of a pause and of a move count by being there.
func slimAnnotations(all map[string]string) map[string]string {
	slim := map[string]string{}
	for _, name := range []string{
		v1alpha1.ClusterUIDAnnotation, v1alpha1.PinProofAnnotation, clusterv1.PausedAnnotation, deleteForMove,
		v1alpha1.DrainUntilAnnotation, v1alpha1.DrainReasonAnnotation, v1alpha1.FencedAnnotation,
	} {
		if value, ok := all[name]; ok {
			slim[name] = strings.Clone(value[:min(len(value), maxAnnotation)])
		}
	}
	return slim
}

func slimLabels(all map[string]string) map[string]string {
	size := 0
	for name, value := range all {
		size += len(name) + len(value)
	}
	if priority, ok := all[v1alpha1.PriorityLabel]; size > maxLabels && ok {
		return map[string]string{v1alpha1.PriorityLabel: priority}
	} else if size > maxLabels {
		return nil
	}
	return maps.Clone(all)
}

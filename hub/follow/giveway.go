package follow

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet/transport"
)

// stoppedPause is the pause between two looks at whether Pods are left.
const stoppedPause = 500 * time.Millisecond

// giving is a leader's cluster that gives way before a planned change: it gets its follower's form while it leads.
type giving struct {
	leader string
	epoch  int64
	since  time.Duration
}

// GiveWay reports whether a planned change away from a leader may go on: its cluster has the follower's form of each
// set of the namespace, and no Pod runs there that a set has stopped. The first call for a term begins that. After the
// confirmWithinSeconds of the sets it goes on anyway, and the sets say so.
func (c *Controller) GiveWay(namespace types.NamespacedName, leader string, epoch int64) bool {
	sets, err := c.ordered(namespace)
	if err != nil || len(sets) == 0 {
		return err == nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	g, now := c.giving[namespace], c.Clock.Now().Boot
	if g == nil || g.leader != leader || g.epoch != epoch {
		g = &giving{leader, epoch, now}
		c.giving[namespace] = g
	}
	waits := false
	for i := range sets {
		within := time.Duration(sets[i].Spec.ConfirmWithinSeconds) * time.Second
		if in := c.state(&sets[i]).inCluster(leader); in.gaveWay != g && now-g.since < within {
			waits = true
			c.add(0, client.ObjectKeyFromObject(&sets[i]), leader)
		}
	}
	if waits {
		return false
	}
	for i := range sets {
		c.goesOn(&sets[i], namespace.Name, g)
	}
	return true
}

// goesOn notes whether a planned change that goes on has waited for a set. The caller holds the lock.
func (c *Controller) goesOn(set *v1alpha1.LeaderResourceSet, namespace string, g *giving) {
	s := c.state(set)
	if s.last == g {
		return
	}
	s.last, s.late = g, ""
	if in := s.in[g.leader]; in.gaveWay != g {
		s.late = fmt.Sprintf("the change away from %s went on after %d s, before its cluster had given way: %s", g.leader,
			set.Spec.ConfirmWithinSeconds, in.why)
		log.Log.Info("A planned change has not waited for a resource set any longer", "reason", reason.OutOfOrder,
			"set", klog.KObj(set), "namespaceLeader", klog.KRef(set.Namespace, namespace), "why", in.why)
	}
	c.add(0, client.ObjectKeyFromObject(set), "")
}

// Stay ends that, because the leader leads on.
func (c *Controller) Stay(namespace types.NamespacedName) {
	c.mu.Lock()
	g := c.giving[namespace]
	delete(c.giving, namespace)
	c.mu.Unlock()
	if g != nil { // unlike after nearly all decisions
		c.eachSet(namespace.Namespace, namespace.Name, g.leader)
	}
}

// ordered returns the sets of a namespace that have different forms.
func (r *requests) ordered(namespace types.NamespacedName) (sets []v1alpha1.LeaderResourceSet, err error) {
	all, err := r.setsOf(namespace.Namespace)
	for _, set := range all {
		for _, from := range set.Spec.Resources {
			if from.For != v1alpha1.RoleAll && set.Spec.Namespace == namespace.Name && set.DeletionTimestamp.IsZero() {
				sets = append(sets, set)
				break
			}
		}
	}
	return sets, err
}

// given returns the planned change for which a cluster gives way, or nil.
func (c *Controller) given(namespace types.NamespacedName, p Place, cluster string) *giving {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.giving[namespace]; g != nil && g.leader == cluster && g.leader == p.Leader && g.epoch == p.Epoch {
		return g
	}
	return nil
}

// notReached is why a cluster without a pass has not given way, such as a paused one.
const notReached = "the hub does not write there, or has not yet"

// give notes that a cluster has given way, or why it has not.
func (c *Controller) give(in *setIn, g *giving, obstacle string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in.why = cmp.Or(obstacle, notReached)
	if obstacle == "" && g != nil {
		in.gaveWay = g
	}
}

// pods selects the Pods of a workload, by their labels and by how their names begin.
type pods struct {
	selector, prefix string
	of               schema.GroupVersionKind // of the workload
}

// stopped returns the workloads that a set runs where the leader is and not in the follower's form. What is in no
// form of a follower goes on where the set does not prune.
func (m manifests) stopped(space string, prunes bool) map[id]pods {
	runs, follows := map[id]pods{}, map[id]bool{}
	for _, o := range m.objects {
		follows[o.in(space)] = follows[o.in(space)] || o.role != v1alpha1.RoleLeader
	}
	for _, o := range m.objects {
		if o.role == v1alpha1.RoleFollowers {
			continue
		}
		if of := podsOf(o); of.selector != "" && (prunes || follows[o.in(space)]) {
			runs[o.in(space)] = of
		}
	}
	for _, o := range m.objects {
		if o.role != v1alpha1.RoleLeader && !isStopped(o) {
			delete(runs, o.in(space))
		}
	}
	return runs
}

// podsOf returns how the Pods of a workload are found. Other objects have none.
func podsOf(o object) pods {
	switch o.kind.GroupKind() {
	case schema.GroupKind{Group: "apps", Kind: "Deployment"}, schema.GroupKind{Group: "apps", Kind: "StatefulSet"}:
		var w struct {
			Spec struct{ Selector *metav1.LabelSelector }
		}
		if into(o, &w) != nil {
			return pods{}
		}
		selector, err := metav1.LabelSelectorAsSelector(w.Spec.Selector)
		if err != nil || selector.Empty() {
			return pods{} // no API server accepts it
		}
		return pods{selector: selector.String(), of: o.kind}
	case schema.GroupKind{Group: "batch", Kind: "CronJob"}:
		// The Jobs are named after it, and their Pods after them.
		return pods{selector: batchv1.JobNameLabel, prefix: o.name + "-", of: o.kind}
	default:
		return pods{}
	}
}

// isStopped reports whether a workload runs nothing in this form.
func isStopped(o object) bool {
	suspended, _, _ := unstructured.NestedBool(o.content, "spec", "suspend")
	var w struct{ Spec struct{ Replicas *int32 } }
	return suspended || into(o, &w) == nil && w.Spec.Replicas != nil && *w.Spec.Replicas == 0
}

// left says which of some workloads have Pods in the member, or may get some. Pods that have ended do not count.
func (p *pass) left(runs map[id]pods) (string, error) {
	var names []string
	for is, of := range runs {
		if err := p.hasStopped(is, of); errors.Is(err, errRuns) {
			names = append(names, is.String())
		} else if err != nil {
			return "", err
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", "), nil
}

// obstacle says what runs, or why that is not known: the pass has failed, or a source could not be read, which may hold
// a workload. It is empty if nothing runs.
func obstacle(f form, runs string, problems []v1alpha1.ResourceProblem, err error) string {
	switch {
	case runs != "":
		return "Pods are left, or may be created, of " + runs
	case err != nil:
		return text(problems[len(problems)-1])
	case !f.whole:
		return text(f.problems[0])
	default:
		return ""
	}
}

// errRuns: a workload has Pods, or its controller may create some.
var errRuns = errors.New("it runs")

// hasStopped returns nil if a workload has no Pod, and its controller creates none. The Pods are listed afterwards:
// until then the controller may create some.
func (p *pass) hasStopped(is id, of pods) error {
	ctx, cancel := context.WithTimeout(p.context, requestTimeout)
	defer cancel()
	if err := p.createsNone(ctx, is, of.of); err != nil {
		return err
	}
	inNamespace := p.objects.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(is.namespace)
	list, err := inNamespace.List(ctx, metav1.ListOptions{
		LabelSelector: of.selector, FieldSelector: "status.phase!=Succeeded,status.phase!=Failed",
	})
	if err == nil && slices.ContainsFunc(list.Items, func(o metav1.PartialObjectMetadata) bool {
		return strings.HasPrefix(o.Name, of.prefix)
	}) {
		return errRuns
	}
	return err
}

// createsNone returns nil if a workload is gone, if it is suspended and has no active Job, or if its controller has
// observed that it is to have no replicas.
func (p *pass) createsNone(ctx context.Context, is id, of schema.GroupVersionKind) error {
	k, err := p.start(p.ended, of)
	switch {
	case errors.Is(err, errNoKind):
		return nil
	case errors.Is(err, errNotListed):
		return errRuns // that is known in a moment
	case err != nil:
		return err
	}
	body, err := p.client.RESTClient().Get().AbsPath("/apis", of.Group, of.Version).Namespace(is.namespace).
		Resource(k.Resource).Name(is.name).SetHeader("Accept", transport.Plain).Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	var w struct {
		Metadata struct{ Generation int64 }
		Spec     struct {
			Suspend  bool
			Replicas *int32
		}
		Status struct {
			ObservedGeneration int64
			Replicas           int32
			Active             []struct{} // Jobs of a CronJob, which create Pods also while it is suspended
		}
	}
	if json.Unmarshal(body, &w) != nil {
		return errRuns
	}
	scaled := w.Spec.Replicas != nil && *w.Spec.Replicas == 0 && w.Status.Replicas == 0 &&
		w.Status.ObservedGeneration >= w.Metadata.Generation
	if !scaled && (!w.Spec.Suspend || len(w.Status.Active) > 0) {
		return errRuns
	}
	return nil
}

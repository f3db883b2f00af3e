package follow

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
)

const (
	// passTimeout bounds a pass with all its requests, and so how long others wait for slow members. The next pass goes
	// on where it ended. It must outlast maxSilent requests without an answer.
	passTimeout = time.Minute
	// notYet is how often a replica that may not write looks whether it may.
	notYet = 5 * time.Second
	// retryFirst and retryMost are the pauses before a problem is tried again. A definition that comes later is used
	// within seconds.
	retryFirst, retryMost = time.Second, 5 * time.Second
	// silentPause is the pause before a cluster is tried again that does not answer.
	silentPause = 5 * time.Second
)

// reconcile works on a set in one cluster, or on its status.
func (c *Controller) reconcile(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, passTimeout)
	defer cancel()
	set := &v1alpha1.LeaderResourceSet{}
	err := c.client.Get(ctx, req.NamespacedName, set)
	switch {
	case apierrors.IsNotFound(err):
		c.forget(req.NamespacedName)
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, err
	case !c.MayWrite(set.Namespace):
		return reconcile.Result{RequeueAfter: notYet}, nil
	case req.ClusterName == "":
		return c.reconcileStatus(ctx, set)
	}
	key, _ := fleet.ParseKey(req.ClusterName) // add has made it
	return c.reconcileIn(ctx, set, key)
}

// reconcileIn puts in place what a set keeps in a cluster.
func (c *Controller) reconcileIn(
	ctx context.Context, set *v1alpha1.LeaderResourceSet, key fleet.Key,
) (reconcile.Result, error) {
	name := client.ObjectKeyFromObject(set)
	later := reconcile.Result{RequeueAfter: time.Duration(set.Spec.IntervalSeconds) * time.Second}
	m, known := c.Fleet.Member(key)
	if !known || m.Gone || m.Deleting {
		c.mu.Lock()
		delete(c.state(set).in, key.Name)
		c.mu.Unlock()
		c.add(0, name, "")
		return reconcile.Result{}, nil
	}
	role, given, stays, err := c.roleIn(ctx, set, m)
	if err != nil {
		return reconcile.Result{}, err
	}
	if stays == reason.NotManaged {
		return later, nil
	}
	c.mu.Lock()
	at, s := c.members[key], c.state(set)
	if has := s.in[key.Name]; role == "" && (has == nil || has.clean) && (at == nil || stays != "") {
		c.mu.Unlock() // it has nothing of the set
		return later, nil
	}
	in := s.inCluster(key.Name)
	c.mu.Unlock()
	if stays != "" {
		why := problem("", stays, "the Cluster is "+strings.ToLower(string(stays))+": what is there stays as it is")
		c.report(set, in, role, nil, []v1alpha1.ResourceProblem{why})
		return later, nil
	}
	if at == nil || m.Unreachable {
		why := problem("", reason.Unreachable, "the hub has no connection to the cluster: what is there stays as it is")
		c.report(set, in, role, nil, []v1alpha1.ResourceProblem{why})
		return reconcile.Result{RequeueAfter: silentPause}, nil
	}
	select {
	case at.passes <- struct{}{}:
		defer func() { <-at.passes }()
	default:
		return reconcile.Result{RequeueAfter: busyPause}, nil
	}
	f := form{whole: true}
	if role != "" {
		sources, err := c.sources.read(ctx, set)
		if err != nil {
			return reconcile.Result{}, err
		}
		m := parse(sources)
		f = m.formOf(role, set.Spec.Namespace)
		if given != nil {
			f.given, f.stops = given, m.stopped(set.Spec.Namespace, ptr.Deref(set.Spec.Prune, true))
		}
	}
	return c.pass(ctx, set, at, in, f, role)
}

// roleIn returns the role of a member, and why what it has stays as it is, if it does. given is the planned change for
// which it gives way.
func (c *Controller) roleIn(
	ctx context.Context, set *v1alpha1.LeaderResourceSet, m fleet.Member,
) (role v1alpha1.ClusterRole, given *giving, stays reason.Reason, err error) {
	namespace := types.NamespacedName{Namespace: set.Namespace, Name: set.Spec.Namespace}
	p, err := c.where(ctx, namespace)
	going := !set.DeletionTimestamp.IsZero()
	switch {
	case err != nil, m.DeleteForMove, moves(set), !p.Managed && !going:
		return "", nil, reason.NotManaged, err
	case !going:
		role = p.role(m.Name)
	}
	switch given = c.given(namespace, p, m.Name); {
	case m.Paused:
		return role, nil, reason.Paused, nil
	case m.IsFenced():
		return role, nil, reason.Fenced, nil
	case given != nil && !going:
		return v1alpha1.RoleFollowers, given, "", nil
	}
	return role, nil, "", nil
}

// where returns where the objects of a namespace's sets belong. A record that this replica has not decided on yet may
// be old, as after a restore of the management cluster.
func (c *Controller) where(ctx context.Context, namespace types.NamespacedName) (Place, error) {
	p, err := c.Place(ctx, namespace)
	c.mu.Lock()
	defer c.mu.Unlock()
	is, known := c.decided[namespace]
	p.undecided, p.Managed = p.Managed && !known, p.Managed && is
	return p, err
}

// isShown reports whether the status of a set shows a cluster.
func isShown(set *v1alpha1.LeaderResourceSet, name string) bool {
	return slices.ContainsFunc(set.Status.Clusters, func(c v1alpha1.ClusterResources) bool { return c.Name == name })
}

// pass applies a form and deletes what it does not have.
func (c *Controller) pass(
	ctx context.Context, set *v1alpha1.LeaderResourceSet, at *member, in *setIn, f form, role v1alpha1.ClusterRole,
) (reconcile.Result, error) {
	now := c.Clock.Now().Boot
	interval := time.Duration(set.Spec.IntervalSeconds) * time.Second
	if in.at != at { // it may be another cluster
		in.at, in.applied, in.full = at, map[id]appliedObject{}, 0
	}
	if in.full != 0 && now-in.full >= interval { // all is applied again; a pass goes on where the last one ended
		for is, has := range in.applied {
			has.hash = ""
			in.applied[is] = has
		}
		in.full = 0
	}
	config := at.inventory.tenants()
	p := &pass{
		controller: c, of: set, in: in, set: identity(set.Namespace, set.Name),
		kinds: readKinds(set.Annotations[v1alpha1.KindsAnnotation]), inventory: at.inventory, context: ctx, ended: at.ended,
		objects: metadata.NewForConfigOrDie(config),
		client:  authorizationclient.NewForConfigOrDie(config),
	}
	if ready, err := c.prepared(ctx, set, p.kinds, p.served(f)); !ready || err != nil {
		return reconcile.Result{RequeueAfter: busyPause}, err
	}
	done, runs, problems, err := p.work(f, ptr.Deref(set.Spec.Prune, true))
	switch {
	case errors.Is(err, errStopped):
		return reconcile.Result{RequeueAfter: notYet}, nil
	case apierrors.IsForbidden(err):
		problems = append(problems, problem("", reason.NotAllowed, "the hub may not see whether Pods are left: "+
			err.Error()+"; apply config/follow in the cluster"))
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		problems = append(problems, problem("", reason.Applying, "it takes longer than one pass, and goes on"))
	case err != nil:
		problems = append(problems, problem("", reason.Unreachable, "the cluster did not answer: "+err.Error()))
	case in.full == 0:
		in.full = now
	}
	c.give(in, f.given, obstacle(f, runs, problems, err))
	times := c.report(set, in, role, &done, problems)
	switch {
	case runs != "":
		return reconcile.Result{RequeueAfter: stoppedPause}, nil
	case times > 0:
		return reconcile.Result{RequeueAfter: min(retryFirst<<min(times-1, 8), retryMost)}, nil
	case role == "":
		return reconcile.Result{RequeueAfter: interval}, nil
	default:
		return reconcile.Result{RequeueAfter: in.full + interval - now}, nil
	}
}

// result is what a pass has reached.
type result struct {
	hash         string
	placed, left int
}

// report keeps the result of work in a cluster, and has it shown if it is another one. done is nil if there was none.
// It returns how many times in a row the work has failed.
func (c *Controller) report(
	set *v1alpha1.LeaderResourceSet, in *setIn, role v1alpha1.ClusterRole, done *result,
	problems []v1alpha1.ResourceProblem,
) (failed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if in.failed++; len(problems) == 0 && (done == nil || done.left == 0) {
		in.failed = 0
	}
	was, clean := in.result, in.clean
	is := was
	is.Role, is.Problems = role, problems[:min(len(problems), maxProblems)]
	in.clean = false
	if done != nil {
		is.Generation = set.Generation
		is.Objects = ptr.To(int32(done.placed + done.left))
		in.clean = role == "" && done.left == 0 && len(problems) == 0
		if len(problems) == 0 && is.Hash != done.hash {
			is.Hash, is.AppliedTime = done.hash, ptr.To(metav1.NewTime(c.Clock.Now().Wall.Truncate(time.Second)))
		}
	}
	if in.result = is; !equality.Semantic.DeepEqual(was, is) || clean != in.clean {
		c.add(0, client.ObjectKeyFromObject(set), "")
	}
	return in.failed
}

// moves reports whether clusterctl is moving a set to another management cluster.
func moves(set *v1alpha1.LeaderResourceSet) bool {
	_, is := set.Annotations[deleteForMove]
	return is
}

// rival returns the name of the set of all that has an identity, and whether the object is its: if it is older, or if
// it is not in the fleet, unless the set may take that over.
func rival(
	all []v1alpha1.LeaderResourceSet, set *v1alpha1.LeaderResourceSet, id string,
) (name string, older bool) {
	for _, other := range all {
		switch {
		case other.Name == set.Name:
			older = true // sets that come after it are younger
		case identity(other.Namespace, other.Name) == id:
			return "the set " + other.Name, !older
		}
	}
	return "a set of another fleet, or one that was deleted without its objects,", !set.Spec.Force
}

// prepared has a set name the kinds before anything of them is applied, and has it keep the finalizer where it prunes.
// named are those that it names. It reports whether the set is so already.
func (c *Controller) prepared(
	ctx context.Context, set *v1alpha1.LeaderResourceSet, named, kinds map[schema.GroupVersionKind]bool,
) (bool, error) {
	all := maps.Clone(named)
	maps.Copy(all, kinds)
	if len(all) > maxNamed {
		all = kinds // what it had of others long ago stays
	}
	prunes, final := ptr.Deref(set.Spec.Prune, true), slices.Contains(set.Finalizers, v1alpha1.SetFinalizer)
	if maps.Equal(all, named) && (prunes == final || !set.DeletionTimestamp.IsZero()) {
		return true, nil
	}
	to := set.DeepCopy()
	to.Finalizers = slices.DeleteFunc(to.Finalizers, func(f string) bool { return f == v1alpha1.SetFinalizer })
	if prunes { // what is deleted has no kinds to be named, so this adds nothing to it
		to.Finalizers = append(to.Finalizers, v1alpha1.SetFinalizer)
	}
	metav1.SetMetaDataAnnotation(&to.ObjectMeta, v1alpha1.KindsAnnotation, writeKinds(all))
	err := c.client.Patch(ctx, to, client.MergeFromWithOptions(set, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		return false, nil // another request for the set was faster
	}
	return false, err
}

package fleet

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// runner is the provider as the manager runs it. It is a type of its own because the multicluster manager
// would also start a provider that has a Start method, and on the elected replica only.
type runner struct{ *Provider }

var _ manager.Runnable = runner{}

// GetCache makes the fleet one of the manager's caches. Those run on every replica, and stop after the controllers: a
// controller that stops must not see all members leave first, and report that.
func (r runner) GetCache() cache.Cache { return r.mgr.GetLocalManager().GetCache() }

// Start runs the fleet until ctx ends, and returns when all its goroutines have ended.
func (r runner) Start(ctx context.Context) error {
	ctx = log.IntoContext(ctx, r.log)
	if err := r.watchHub(ctx); err != nil {
		return err
	}
	var group sync.WaitGroup
	defer group.Wait()
	defer r.secrets.Wait()
	defer r.changed.ShutDown()
	context.AfterFunc(ctx, r.work.ShutDown)
	for _, name := range r.options.Namespaces {
		r.secrets.Open(ctx, name)
	}
	group.Go(func() { r.detectPauses(ctx) })
	group.Go(func() { r.notifySubscriber(ctx) })
	group.Go(func() { r.awaitElection(ctx) })
	r.work.Add(everything)
	for k, ended := r.work.Get(); !ended; k, ended = r.work.Get() {
		if k != everything {
			r.sync(ctx, k, &group)
		}
		r.work.Done(k)
		if r.work.Len() == 0 {
			r.closeSynced(ctx, &group)
		}
	}
	return nil
}

// everything is a key without a Cluster: it has the runner check whether all Clusters are known.
var everything Key

// closeSynced closes the channel when every Cluster is known. A fleet's Secrets may have been seen after its Clusters
// were taken from the queue; therefore all Clusters are synced once more.
func (r runner) closeSynced(ctx context.Context, group *sync.WaitGroup) {
	select {
	case <-r.synced:
		return
	default:
	}
	if !r.secrets.AllSettled() {
		return
	}
	for _, c := range r.clusters(ctx, "") {
		r.sync(ctx, Key{Fleet: c.Namespace, Name: c.Name}, group)
	}
	close(r.synced)
}

// watchHub fills the work queue with the Clusters that change in the hub. It returns when all present ones have been
// seen.
func (r runner) watchHub(ctx context.Context) error {
	informer, err := r.mgr.GetLocalManager().GetCache().GetInformer(ctx, &clusterv1.Cluster{})
	if err != nil {
		return fmt.Errorf("watch Clusters in the hub: %w", err)
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    r.enqueue,
		UpdateFunc: func(_, obj any) { r.enqueue(obj) },
		DeleteFunc: r.enqueue,
	})
	if err != nil {
		return fmt.Errorf("watch Clusters in the hub: %w", err)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return fmt.Errorf("the hub's Clusters were not seen in time: %w", ctx.Err())
	}
	return nil
}

// enqueue adds a Cluster, or the last state of a deleted one.
func (r runner) enqueue(obj any) {
	if deleted, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = deleted.Obj
	}
	if o, ok := obj.(*clusterv1.Cluster); ok {
		k := Key{Fleet: o.Namespace, Name: o.Name}
		_, moves := o.Annotations[deleteForMove]
		r.noteMove(k, o.UID, moves)
		r.work.Add(k)
	}
}

// sync hands a member what the hub's objects say, and starts it if it is a new one. It reads memory only.
func (r runner) sync(ctx context.Context, k Key, group *sync.WaitGroup) {
	m := r.get(k)
	s, err := r.readHub(ctx, k)
	switch {
	case apierrors.IsNotFound(err):
		r.secrets.Forget(k.Fleet, k.Name)
		if m != nil {
			m.gone(r.movedUID(k))
		}
		return
	case err != nil:
		// The cache is local: it fails when the manager stops.
		log.FromContext(ctx).Error(err, "Cluster not read", "cluster", klog.KRef(k.Fleet, k.Name))
		return
	case m == nil && !s.keeps():
		r.secrets.Forget(k.Fleet, k.Name)
		return
	case !r.opened(ctx, k.Fleet):
		return // it is enqueued again once the Secrets can be read, or it is known why not
	}
	kubeconfig := r.secrets.Kubeconfig(k.Fleet, k.Name)
	s.kubeconfig, s.noKubeconfig, s.refused = kubeconfig.Value, kubeconfig.Missing, kubeconfig.Refused
	switch {
	case m == nil:
		r.start(ctx, k, s, group)
	case m.setSpec(s):
		r.demandProbes(m)
	}
}

func (r runner) readHub(ctx context.Context, k Key) (spec, error) {
	hub := r.mgr.GetLocalManager().GetCache()
	var c clusterv1.Cluster
	if err := hub.Get(ctx, client.ObjectKey{Namespace: k.Fleet, Name: k.Name}, &c); err != nil {
		return spec{}, err
	}
	return readSpec(&c, r.sealKey(k.Fleet)), nil
}

func (r runner) start(ctx context.Context, k Key, s spec, group *sync.WaitGroup) {
	m := newMember(r.shared, k)
	m.state.spec = s
	r.add(m)
	group.Go(func() {
		ctx, cancel := context.WithCancel(ctx)
		var probing sync.WaitGroup
		probing.Go(func() { newProber(m).run(ctx) })
		(&connection{installer: installer{member: m}, members: r.registry}).run(ctx)
		cancel()
		probing.Wait()
	})
}

// awaitElection wakes the members when this replica is elected.
func (r runner) awaitElection(ctx context.Context) {
	select {
	case <-r.mgr.Elected():
		r.wake("")
	case <-ctx.Done():
	}
}

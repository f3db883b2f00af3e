package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/leasecast/leasecast/hub/fleet/wake"
)

// runner is the provider as the manager runs it. It is a type of its own because the multicluster manager
// would also start a provider that has a Start method, and on the elected replica only.
type runner struct{ *Provider }

var (
	_ manager.Runnable               = runner{}
	_ manager.LeaderElectionRunnable = runner{}
)

// NeedLeaderElection is false: the fleet runs on every replica.
func (runner) NeedLeaderElection() bool { return false }

// Start runs the fleet until ctx ends, and returns when all its goroutines have ended.
func (r runner) Start(ctx context.Context) error {
	ctx = log.IntoContext(ctx, r.log)
	if err := r.watchHub(ctx); err != nil {
		return err
	}
	var group sync.WaitGroup
	defer group.Wait()
	defer r.secrets.Wait()
	for _, name := range r.options.Namespaces {
		r.secrets.Open(ctx, name)
	}
	group.Go(func() { r.detectPauses(ctx) })
	group.Go(func() { r.notifySubscribers(ctx) })
	group.Go(func() { r.awaitElection(ctx) })
	for {
		for _, k := range r.work.getAll() {
			r.sync(ctx, k, &group)
		}
		select {
		case <-r.synced:
		default:
			r.closeSynced(ctx, &group)
		}
		if wake.For(ctx, r.timers, forever, r.work.wake) != nil {
			return nil
		}
	}
}

// closeSynced closes the channel when every Cluster is known. A fleet's Secrets may have been seen after its Clusters
// were taken from the queue; therefore all Clusters are looked at once more.
func (r runner) closeSynced(ctx context.Context, group *sync.WaitGroup) {
	if !r.secrets.AllSettled() {
		return
	}
	for _, c := range r.clusters(ctx, "") {
		if k := (Key{Fleet: c.Namespace, Name: c.Name}); r.serves(k.Fleet) {
			r.sync(ctx, k, group)
		}
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
		r.noteMove(k, o)
		r.ask(k)
	}
}

// ask has a Cluster looked at, if its fleet is served.
func (r runner) ask(k Key) {
	if r.serves(k.Fleet) {
		r.work.add(k)
	}
}

// serves reports whether a fleet is among those that the options name, or the options name none.
func (r runner) serves(fleet string) bool {
	return len(r.options.Namespaces) == 0 || slices.Contains(r.options.Namespaces, fleet)
}

// noteMove remembers that a Cluster is moving to another hub. The move annotates and deletes it within
// milliseconds, and after that the cache shows nothing.
func (r runner) noteMove(k Key, c *clusterv1.Cluster) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, moved := c.Annotations[deleteForMove]; moved {
		r.moved[k] = c.UID
	} else if r.moved[k] != c.UID {
		delete(r.moved, k)
	}
}

// sync hands a member what the hub's objects say, and starts it if it is a new one. It reads memory only.
func (r runner) sync(ctx context.Context, k Key, group *sync.WaitGroup) {
	r.mu.Lock()
	m, moved := r.members[k], r.moved[k]
	r.mu.Unlock()
	s, err := r.readHub(ctx, k)
	switch {
	case apierrors.IsNotFound(err):
		r.secrets.Release(k.Fleet, k.Name)
		if m != nil {
			m.gone(moved)
		}
		return
	case err != nil:
		// The cache is local: it fails when the manager stops.
		log.FromContext(ctx).Error(err, "Cluster not read", "cluster", klog.KRef(k.Fleet, k.Name))
		return
	case m == nil && !s.keeps():
		r.secrets.Release(k.Fleet, k.Name)
		return
	case !r.opened(ctx, k.Fleet):
		return // it is looked at again when the Secrets can be seen, or it is known why not
	}
	kubeconfig := r.secrets.Kubeconfig(k.Fleet, k.Name, s.created)
	s.kubeconfig, s.noKubeconfig, s.refused = kubeconfig.Value, kubeconfig.Missing, kubeconfig.Refused
	if m != nil {
		m.setSpec(s)
	} else {
		r.start(ctx, k, s, group)
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
	m, err := newMember(r.Provider, k)
	if err != nil {
		// No content of a Cluster leads here.
		log.FromContext(ctx).Error(err, "Member not started", "cluster", klog.KRef(k.Fleet, k.Name))
		return
	}
	m.state.spec = s
	r.mu.Lock()
	m.setProbing(r.probing[k.Fleet])
	r.members[k] = m
	r.mu.Unlock()
	r.changed.add(k)
	group.Go(func() {
		ctx, cancel := context.WithCancel(ctx)
		var probe sync.WaitGroup
		probe.Go(func() { m.probe(ctx) })
		m.run(ctx)
		cancel()
		probe.Wait()
	})
}

// elected reports whether the controllers of this replica run, or are about to.
func (p *Provider) elected() bool {
	select {
	case <-p.mgr.Elected():
		return true
	default:
		return false
	}
}

// awaitElection wakes the members when this replica is elected.
func (p *Provider) awaitElection(ctx context.Context) {
	select {
	case <-p.mgr.Elected():
	case <-ctx.Done():
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.members {
		wake.Wake(m.wake)
		wake.Wake(m.wakeProbe)
	}
}

// remove takes out a member that is to be forgotten. It returns false if the member takes part again
// meanwhile.
func (p *Provider) remove(m *member) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m.get().spec.takesPart() {
		return false
	}
	delete(p.members, m.key)
	p.changed.add(m.key)
	for _, other := range p.members {
		wake.Wake(other.wake) // it may wait for the UID
	}
	// Should the Cluster have come back between the two, it is looked at again.
	p.work.add(m.key)
	return true
}

// notifySubscribers calls them until ctx ends.
func (p *Provider) notifySubscribers(ctx context.Context) {
	for wake.For(ctx, p.timers, forever, p.changed.wake) == nil {
		for _, k := range p.changed.getAll() {
			p.mu.Lock()
			subscribers := slices.Collect(maps.Values(p.subscribers))
			p.mu.Unlock()
			for _, f := range subscribers {
				f(k)
			}
		}
	}
}

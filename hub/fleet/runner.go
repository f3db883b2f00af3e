package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/leasecast/leasecast/hub/fleet/wake"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/leasecast/leasecast/hub/seal"
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
			close(r.synced)
		}
		if wake.For(ctx, r.timers, forever, r.work.wake) != nil {
			return nil
		}
	}
}

// watchHub fills the work queue with what changes in the hub. It returns when all present objects have been
// seen.
func (r runner) watchHub(ctx context.Context) error {
	hub := r.mgr.GetLocalManager().GetCache()
	var synced []toolscache.InformerSynced
	for _, obj := range []client.Object{&clusterv1.Cluster{}, &corev1.Secret{}} {
		informer, err := hub.GetInformer(ctx, obj)
		if err != nil {
			return fmt.Errorf("watch %T in the hub: %w", obj, err)
		}
		registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { r.enqueue(ctx, obj) },
			UpdateFunc: func(_, obj any) { r.enqueue(ctx, obj) },
			DeleteFunc: func(obj any) { r.enqueue(ctx, obj) },
		})
		if err != nil {
			return fmt.Errorf("watch %T in the hub: %w", obj, err)
		}
		synced = append(synced, registration.HasSynced)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return fmt.Errorf("the hub's Clusters and Secrets were not seen in time: %w", ctx.Err())
	}
	return nil
}

// enqueue adds the member of an object of the hub, or of the last state of a deleted one.
func (r runner) enqueue(ctx context.Context, obj any) {
	if deleted, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = deleted.Obj
	}
	var k Key
	switch o := obj.(type) {
	case *clusterv1.Cluster:
		k = Key{Fleet: o.Namespace, Name: o.Name}
		r.noteMove(k, o)
	case *corev1.Secret:
		if o.Name == seal.SecretName {
			r.noteSeal(ctx, o.Namespace)
		}
		name, ok := strings.CutSuffix(o.Name, kubeconfigSuffix)
		if !ok || name == "" {
			return
		}
		k = Key{Fleet: o.Namespace, Name: name}
	default:
		return
	}
	if ns := r.options.Namespaces; len(ns) == 0 || slices.Contains(ns, k.Fleet) {
		r.work.add(k)
	}
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

// sync hands a member what the hub's objects say, and starts it if it is a new one. It reads the cache only.
func (r runner) sync(ctx context.Context, k Key, group *sync.WaitGroup) {
	r.mu.Lock()
	m, moved := r.members[k], r.moved[k]
	r.mu.Unlock()
	s, err := r.readHub(ctx, k)
	switch {
	case apierrors.IsNotFound(err):
		if m != nil {
			m.gone(moved)
		}
		return
	case err != nil:
		// The cache is local: it fails when the manager stops.
		log.FromContext(ctx).Error(err, "Cluster not read", "cluster", klog.KRef(k.Fleet, k.Name))
		return
	}
	switch {
	case m != nil:
		m.setSpec(s)
	case s.keeps():
		r.start(ctx, k, s, group)
	}
}

func (r runner) readHub(ctx context.Context, k Key) (spec, error) {
	hub := r.mgr.GetLocalManager().GetCache()
	var c clusterv1.Cluster
	if err := hub.Get(ctx, client.ObjectKey{Namespace: k.Fleet, Name: k.Name}, &c); err != nil {
		return spec{}, err
	}
	secret := &corev1.Secret{}
	err := hub.Get(ctx, client.ObjectKey{Namespace: k.Fleet, Name: k.Name + kubeconfigSuffix}, secret)
	if apierrors.IsNotFound(err) {
		secret, err = nil, nil
	}
	if err != nil {
		return spec{}, err
	}
	return readSpec(&c, secret), nil
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
	m.setSkews(r.skews)
	r.members[k] = m
	r.mu.Unlock()
	r.changed.add(k)
	group.Go(func() {
		ctx, cancel := context.WithCancel(ctx)
		var probe sync.WaitGroup
		probe.Go(func() { m.probe(ctx) })
		probe.Go(func() { m.sampleLeases(ctx) })
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

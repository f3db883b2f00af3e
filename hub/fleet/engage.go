package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/fleet/wake"
	"github.com/leasecast/leasecast/hub/guard"
)

// memberScheme holds the kinds that a member's cached client knows.
var memberScheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(s))
	utilruntime.Must(coordinationv1.AddToScheme(s))
	return s
}()

// memberMapper knows where these kinds are served, so that no member has to be asked.
var memberMapper = func() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	m.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	m.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	return m
}()

// runningCluster is a cluster whose caches run.
type runningCluster struct {
	cluster cluster.Cluster
	// ctx is the lifetime of the cluster. It ends with that of the provider, or by stop.
	ctx context.Context
	// stop ends the cluster and waits until it has ended.
	stop func()
	// engaged: the manager has the cluster.
	engaged bool
}

// connect makes the member's cluster and waits until its informers are full. It does nothing if that was
// done.
func (c *connection) connect(ctx context.Context) error {
	s := c.get()
	if c.running != nil || s.target == nil {
		return nil // done, or a probe has just found another cluster
	}
	refused := &refusal{log: log.FromContext(ctx).WithValues("cluster", klog.KRef(c.key.Fleet, c.key.Name))}
	cl, err := c.newCluster(refused)
	if err != nil {
		return err
	}
	for _, i := range c.p.indexed() {
		if err := cl.GetFieldIndexer().IndexField(ctx, i.object, i.field, i.extract); err != nil {
			return fmt.Errorf("index field %q: %w", i.field, err)
		}
	}
	for _, obj := range []client.Object{&corev1.Namespace{}, &coordinationv1.Lease{}} {
		if _, err := cl.GetCache().GetInformer(ctx, obj, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("make the informer of %T: %w", obj, err)
		}
	}
	w := c.start(cl, refused.log)
	if err := awaitSync(ctx, s.target, cl, refused); err != nil {
		w.stop()
		return err
	}
	c.running = w
	c.change(func(s *state) { s.cluster, s.contact = cl, Problem{} })
	wake.Wake(c.wakeProbe) // writes are probed from now on
	return nil
}

// start runs the caches of a cluster. They outlive the step that starts them.
func (c *connection) start(cl cluster.Cluster, logger logr.Logger) *runningCluster {
	ctx, cancel := context.WithCancel(c.lifetime)
	var running sync.WaitGroup
	running.Go(func() {
		if err := cl.Start(ctx); err != nil {
			logger.Error(err, "Caches stopped")
		}
	})
	return &runningCluster{cluster: cl, ctx: ctx, stop: func() {
		cancel()
		running.Wait()
	}}
}

// engage gives the cluster to the manager, once this replica is elected and it is certain which cluster this is.
// Before the election no controller runs. If a cluster ends before the controllers start, a manager that has it fails
// when they do.
func (c *connection) engage(ctx context.Context) error {
	if s := c.get(); c.running == nil || c.running.engaged || !c.p.elected() || !s.identified() {
		return nil
	}
	if err := c.p.mgr.Engage(c.running.ctx, c.key.ClusterName(), c.running.cluster); err != nil {
		return fmt.Errorf("engage: %w", err)
	}
	c.running.engaged = true
	log.FromContext(ctx).Info("Member engaged", "cluster", klog.KRef(c.key.Fleet, c.key.Name))
	return nil
}

func (c *connection) newCluster(refused *refusal) (cluster.Cluster, error) {
	managed := labels.SelectorFromSet(labels.Set{v1alpha1.ManagedLabel: "true"})
	cl, err := cluster.New(c.cachesConfig, func(o *cluster.Options) {
		o.Scheme = memberScheme
		o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return memberMapper, nil }
		o.HTTPClient = c.readers // for what others watch there
		o.Logger = c.p.log
		o.Cache = cache.Options{
			HTTPClient:                  c.informer,
			ReaderFailOnMissingInformer: true,
			DefaultWatchErrorHandler:    refused.handle,
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Namespace{}:     {},
				&coordinationv1.Lease{}: {Label: managed, Field: guard.Guarded()},
			},
		}
	})
	if err != nil {
		return nil, fmt.Errorf("make the caches: %w", err)
	}
	return cl, nil
}

// refusal remembers that a member refused what an informer asked for. Waiting does not help then.
type refusal struct {
	log logr.Logger

	mu     sync.Mutex
	err    error
	giveUp context.CancelFunc
}

// handle is called for each request of an informer that failed. Requests without an answer do not get here
// (see transport.Retry).
func (r *refusal) handle(ctx context.Context, _ *toolscache.Reflector, err error) {
	if ctx.Err() != nil {
		return
	}
	r.log.Info("Member could not be watched", "error", transport.Shorten(err.Error()))
	if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
	if r.giveUp != nil {
		r.giveUp()
	}
}

func (r *refusal) watch(giveUp context.CancelFunc) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.giveUp = giveUp
	return r.err
}

func awaitSync(ctx context.Context, t *transport.Target, cl cluster.Cluster, refused *refusal) error {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	if refused.watch(cancel) == nil && cl.GetCache().WaitForCacheSync(ctx) {
		return nil
	}
	if err := refused.watch(nil); err != nil {
		return t.Describe(err)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &transport.ContactError{Reason: reason.Unreachable, Message: fmt.Sprintf("Namespaces and Leases could not be listed within %v", syncTimeout)}
	}
	return ctx.Err()
}

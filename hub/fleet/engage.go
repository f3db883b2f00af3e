package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

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

// managed selects the Leases of the hub.
var managed = labels.SelectorFromSet(labels.Set{v1alpha1.ManagedLabel: "true"})

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
	cl, err := c.newCluster()
	if err != nil {
		return err
	}
	for _, obj := range []client.Object{&corev1.Namespace{}, &coordinationv1.Lease{}} {
		if _, err := cl.GetCache().GetInformer(ctx, obj, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("make the informer of %T: %w", obj, err)
		}
	}
	running := c.start(cl)
	syncCtx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	if !cl.GetCache().WaitForCacheSync(syncCtx) {
		running.stop()
		if errors.Is(syncCtx.Err(), context.DeadlineExceeded) {
			return &transport.ContactError{Reason: reason.Unreachable,
				Message: fmt.Sprintf("Namespaces and Leases could not be listed within %v", syncTimeout)}
		}
		return syncCtx.Err()
	}
	c.running = running
	c.change(func(s *state) { s.cluster, s.contact = cl, Problem{} })
	wake.Wake(c.wakeProbe) // writes are probed from now on
	return nil
}

// start runs the caches of a cluster. They outlive the step that starts them.
func (c *connection) start(cl cluster.Cluster) *runningCluster {
	ctx, cancel := context.WithCancel(c.lifetime)
	var running sync.WaitGroup
	running.Go(func() {
		if err := cl.Start(ctx); err != nil {
			c.logger().Error(err, "Caches stopped")
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
func (c *connection) engage() error {
	if s := c.get(); c.running == nil || c.running.engaged || !c.isElected() || !s.identified() {
		return nil
	}
	if err := c.mgr.Engage(c.running.ctx, c.key.ClusterName(), c.running.cluster); err != nil {
		return fmt.Errorf("engage: %w", err)
	}
	c.running.engaged = true
	c.logger().Info("Member engaged")
	return nil
}

func (c *connection) newCluster() (cluster.Cluster, error) {
	cl, err := cluster.New(c.requests.Config(c.requests.Caches()), func(o *cluster.Options) {
		o.Scheme = memberScheme
		o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return memberMapper, nil }
		o.HTTPClient = c.readers // for what others watch there
		o.Logger = c.log
		o.Cache = cache.Options{
			HTTPClient:                  c.informers,
			ReaderFailOnMissingInformer: true,
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

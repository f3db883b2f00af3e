// Package secrets reads the Secrets of fleets on the management cluster: kubeconfigs, and seals.
//
// The right to read Secrets is given fleet by fleet, because it means the right to everything in
// the fleet's members. So each fleet has a watch of its own, which begins when all that the hub
// needs is granted. A grant that is missing is named, with the command that gives it, and is
// no concern of the other fleets. One that is taken away later changes nothing about what was seen before. Secrets that
// are granted and cannot be listed are reported in the same way.
//
// Other programs keep Secrets in the same namespace, and people may put anything there. So the watch shows metadata
// only. A Secret is read by itself, one at a time in each fleet, when it is the seal, or when a Cluster needs it.
package secrets

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/fleet/wake"
	"github.com/leasecast/leasecast/hub/seal"
)

// Grants are asked for again after pauses from the one to the other, and Secrets that cannot be read.
const (
	askFirst   = time.Second
	askSlowest = 15 * time.Second
)

// listTimeout is for how long a fleet whose Secrets cannot be listed delays the others.
const listTimeout = 15 * time.Second

// Options configure a Store. All fields are required.
type Options struct {
	Client   kubernetes.Interface
	Metadata metadata.Interface
	Timers   clock.Clock
	Log      logr.Logger
	// Seen is called with every kubeconfig and seal that is made, changed, read, refused or deleted, with the name of the
	// Secret. It must not block.
	Seen func(ctx context.Context, fleet, name string)
	// Changed is called when the Secrets of a fleet can be read, it is known why not, or nobody asks for them.
	Changed func(ctx context.Context, fleet string)
	// Wanted reports whether anybody needs the Secrets of a fleet. It is asked while a grant is missing.
	Wanted func(ctx context.Context, fleet string) bool
}

// Store shows Secrets. Its methods may be called from any goroutine.
type Store struct {
	Options
	group sync.WaitGroup

	mu     sync.Mutex // guards what follows; never held across I/O
	fleets map[string]*fleet
}

// fleet is what is known of one namespace.
type fleet struct {
	// settled: the metadata were seen, or it is known why not: missing is the grant, or what prevents the list.
	settled bool
	missing string
	store   toolscache.Store // of metadata; nil: never seen

	queue       workqueue.TypedRateLimitingInterface[string] // of Secrets that are to be read
	seal        kept
	kubeconfigs map[string]*kept // that Clusters need, by the names of their Secrets
}

// New returns a Store that shows no fleet yet.
func New(o Options) *Store { return &Store{Options: o, fleets: map[string]*fleet{}} }

// Open begins to show a fleet, until ctx ends. It does not wait.
func (s *Store) Open(ctx context.Context, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.fleets[name]; ok {
		return
	}
	pause := workqueue.NewTypedItemExponentialFailureRateLimiter[string](askFirst, askSlowest)
	f := &fleet{
		queue: workqueue.NewTypedRateLimitingQueue(pause), seal: kept{name: seal.SecretName},
		kubeconfigs: map[string]*kept{},
	}
	s.fleets[name] = f
	s.group.Go(func() {
		defer f.queue.ShutDown()
		s.run(ctx, name, f)
	})
	s.group.Go(func() { s.readAll(ctx, name, f) })
}

// Wait returns when all has ended that Open began.
func (s *Store) Wait() { s.group.Wait() }

// Settled reports whether the Secrets of a fleet were seen, or it is known why not.
func (s *Store) Settled(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, ok := s.fleets[name]
	return ok && f.settled
}

// AllSettled is Settled for all fleets that were opened.
func (s *Store) AllSettled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.fleets {
		if !f.settled {
			return false
		}
	}
	return true
}

// Missing says which grant the hub lacks for a fleet, and how to give it, or why the Secrets cannot be listed; empty if
// nothing is missing, or if that is not known yet.
func (s *Store) Missing(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fleets[name].missingGrant()
}

// run shows a fleet until ctx ends, or until nobody wants one that cannot be seen.
func (s *Store) run(ctx context.Context, name string, f *fleet) {
	for pause := askFirst; ctx.Err() == nil; pause = min(2*pause, askSlowest) {
		missing, err := s.ask(ctx, name)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.Log.V(1).Info("The API server does not say what the hub may do", "fleet", name, "err", err.Error())
		case missing == "":
			pause = askFirst
			s.follow(ctx, name, f)
		default:
			if s.settle(f, missing, nil) {
				s.Log.Info("A grant is missing, so the Clusters of this namespace cannot be reached",
					"fleet", name, "missing", missing)
				s.Changed(ctx, name)
			}
			if !s.Wanted(ctx, name) {
				s.mu.Lock()
				delete(s.fleets, name)
				s.mu.Unlock()
				s.Changed(ctx, name) // a Cluster that came since it was unwanted opens it again
				return
			}
		}
		_ = wake.For(ctx, s.Timers, pause, nil) // the loop ends with ctx
	}
}

// settle records what is known of a fleet now, and reports whether that has changed.
func (s *Store) settle(f *fleet, missing string, store toolscache.Store) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := !f.settled || f.missing != missing || store != nil
	f.settled, f.missing = true, missing
	if store != nil {
		f.store = store
	}
	return changed
}

// follow watches the Secrets of a fleet until ctx ends or the right to do so does.
func (s *Store) follow(ctx context.Context, name string, f *fleet) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen := func(o any) {
		if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
		}
		if secret, ok := o.(*metav1.PartialObjectMetadata); ok {
			s.Seen(ctx, name, secret.Name)
		}
	}
	informer, err := s.informer(name)
	var last atomic.Value // the last error of the informer
	last.Store("no answer yet")
	if err == nil {
		err = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *toolscache.Reflector, err error) {
			if apierrors.IsForbidden(err) {
				cancel()
				return
			}
			last.Store(transport.Shorten(err.Error()))
			toolscache.DefaultWatchErrorHandler(ctx, r, err)
		})
	}
	if err == nil {
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: seen, UpdateFunc: func(_, o any) { seen(o) }, DeleteFunc: seen,
		})
	}
	if err != nil {
		s.Log.Error(err, "Secrets cannot be watched", "fleet", name) // not before the informer runs
		return
	}
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	synced := informer.HasSyncedChecker().Done()
	for wake.For(ctx, s.Timers, listTimeout, synced) == nil && !informer.HasSynced() {
		if s.settle(f, fmt.Sprintf("the Secrets in namespace %s cannot be listed: %s", name, last.Load()), nil) {
			s.Log.Info("Secrets cannot be listed, so the Clusters of this namespace cannot be reached",
				"fleet", name, "err", last.Load())
			s.Changed(ctx, name)
		}
	}
	select {
	case <-synced:
		s.settle(f, "", informer.GetStore())
		s.Changed(ctx, name)
	case <-ctx.Done():
	}
	running.Wait()
}

// metadata returns those of a kubeconfig or seal as they were seen last, and nil if there is none.
func (f *fleet) metadata(namespace, name string) *metav1.PartialObjectMetadata {
	if f == nil || f.store == nil {
		return nil
	}
	o, _, _ := f.store.GetByKey(namespace + "/" + name) // a store in memory
	found, _ := o.(*metav1.PartialObjectMetadata)
	return found
}

func (f *fleet) missingGrant() string {
	if f == nil {
		return ""
	}
	return f.missing
}

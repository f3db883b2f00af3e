// Package secrets shows the Secrets of fleets on the management cluster: kubeconfigs, and seals.
//
// The right to read Secrets is given fleet by fleet, because it means the right to everything in
// the fleet's members. So each fleet has a watch of its own, which begins when all that the hub
// needs is granted. A grant that is missing is named, with the command that gives it, and is
// no concern of the other fleets. One that is taken away later changes nothing about what was seen before.
//
// Whoever may write Secrets there must not fill the hub's memory, nor have the kubeconfigs of others refused: see slimmer and
// shares.
package secrets

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// Grants are asked for again after pauses from the one to the other.
const (
	askFirst   = time.Second
	askSlowest = 15 * time.Second
)

// Options configure a Store. All fields are required.
type Options struct {
	Client kubernetes.Interface
	Timers clock.Clock
	Log    logr.Logger
	// Seen hears of every Secret that is made, changed or deleted, or of which more or less is kept, with its name. It must
	// not block.
	Seen func(ctx context.Context, fleet, name string)
	// News hears that the Secrets of a fleet can be seen now, or that it is known which grant is missing.
	News func(ctx context.Context, fleet string)
	// Wanted reports whether anybody needs the Secrets of a fleet. It is asked while a grant is missing.
	Wanted func(ctx context.Context, fleet string) bool
	// Needed reports whether a Cluster needs the kubeconfig in a Secret, and since when that Cluster is there. It must read
	// memory only. Call Release when it is not needed any more.
	Needed func(ctx context.Context, fleet, name string) (since time.Time, ok bool)
}

// Store shows Secrets. Its methods may be called from any goroutine.
type Store struct {
	Options
	group sync.WaitGroup

	mu     sync.Mutex // guards what follows; never held across I/O
	fleets map[string]*fleet
	as     string // see whoAmI
}

// fleet is what is known of one namespace.
type fleet struct {
	// settled: the Secrets were seen, or it is known which grant is missing.
	settled bool
	missing string
	store   toolscache.Store // nil: never seen
	shares  *shares
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
	f := &fleet{shares: newShares(
		func(secret string) (time.Time, bool) { return s.Needed(ctx, name, secret) },
		func(secret string) { s.Seen(ctx, name, secret) },
	)}
	s.fleets[name] = f
	s.group.Go(func() { s.run(ctx, name, f) })
}

// Wait returns when all has ended that Open began.
func (s *Store) Wait() { s.group.Wait() }

// Settled reports whether the Secrets of a fleet were seen, or the missing grant is known.
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

// Missing says which grant the hub lacks for a fleet, and how to give it; empty if none, or if that is not known yet.
func (s *Store) Missing(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f, ok := s.fleets[name]; ok {
		return f.missing
	}
	return ""
}

// Get returns what is kept of a kubeconfig or a seal as it was seen last, and nil if there is none. Do not change it.
func (s *Store) Get(name, secret string) *corev1.Secret {
	f, store := s.fleet(name)
	if store == nil {
		return nil
	}
	o, _, _ := store.GetByKey(name + "/" + secret) // a store in memory
	found, _ := o.(*corev1.Secret)
	if found == nil || !isKubeconfig(found) {
		return found
	}
	return f.shares.show(found)
}

// Release says that no Cluster needs the kubeconfig in a Secret any more.
func (s *Store) Release(name, secret string) {
	if f, _ := s.fleet(name); f != nil {
		f.shares.release(secret)
	}
}

// fleet is one that is shown, and its Secrets if they were seen.
func (s *Store) fleet(name string) (*fleet, toolscache.Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, ok := s.fleets[name]
	if !ok {
		return nil, nil
	}
	return f, f.store
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
				s.Log.Info("A grant is missing, so the Clusters of this namespace cannot be reached", "fleet", name, "missing", missing)
				s.News(ctx, name)
			}
			if !s.Wanted(ctx, name) {
				s.mu.Lock()
				delete(s.fleets, name)
				s.mu.Unlock()
				return
			}
		}
		select {
		case <-s.Timers.After(pause):
		case <-ctx.Done():
		}
	}
}

// settle notes what is known of a fleet now, and reports whether that is news.
func (s *Store) settle(f *fleet, missing string, store toolscache.Store) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	news := !f.settled || f.missing != missing || store != nil
	f.settled, f.missing = true, missing
	if store != nil {
		f.store = store
	}
	return news
}

// follow watches the Secrets of a fleet until ctx ends or the right to do so does.
func (s *Store) follow(ctx context.Context, name string, f *fleet) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	slim := slimmer{f.shares}
	informer := toolscache.NewSharedIndexInformer(slim.listerWatcher(s.Client, name), &corev1.Secret{}, 0, toolscache.Indexers{})
	seen := func(o any) {
		if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
			if secret, ok := o.(*corev1.Secret); ok {
				f.shares.forget(secret) // no watch has shown that
			}
		}
		if secret, ok := o.(*corev1.Secret); ok {
			s.Seen(ctx, name, secret.Name)
		}
	}
	err := informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *toolscache.Reflector, err error) {
		if apierrors.IsForbidden(err) {
			cancel()
			return
		}
		toolscache.DefaultWatchErrorHandler(ctx, r, err)
	})
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
	running.Go(func() { s.readLate(ctx, name, f.shares) })
	select {
	case <-informer.HasSyncedChecker().Done():
		f.shares.only(informer.GetStore())
		s.settle(f, "", informer.GetStore())
		s.News(ctx, name)
	case <-ctx.Done():
	}
	running.Wait()
}

package secrets

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/leasecast/leasecast/hub/fleet/wake"
)

const (
	// maxFleet bounds the kubeconfigs of a fleet that are kept, in bytes.
	maxFleet = 32 << 20
	// refused and unread are the annotations of a Secret that is shown without its kubeconfig. The first says why.
	refused = "leasecast.dev/refused"
	unread  = "leasecast.dev/unread"
)

// tooMany says why a kubeconfig is not kept that there is no room for.
var tooMany = fmt.Sprintf("the kubeconfigs of the Clusters in its namespace have more than %d MiB together, and older Clusters come first: "+
	"make kubeconfigs smaller, or delete Clusters that nobody needs", maxFleet>>20)

// Refused says why the kubeconfig in a Secret is not kept; empty if it is.
func Refused(s *corev1.Secret) string { return s.Annotations[refused] }

// Unread reports whether a kubeconfig is about to be read, because no Cluster needed it when it was shown.
func Unread(s *corev1.Secret) bool { return s.Annotations[unread] != "" }

// shares divide among the Clusters of a fleet what is kept of their kubeconfigs. Nothing is kept of a Secret that no Cluster
// needs. Above the bound the kubeconfigs of older Clusters are kept, in whatever order they are seen. So nobody who makes more
// Secrets or Clusters takes anything from those that were there.
type shares struct {
	needed func(secret string) (since time.Time, ok bool)
	told   func(secret string) // more or less is kept of it now

	mu    sync.Mutex // guards what follows; needed is called under it, told is not
	all   map[string]*share
	sum   int
	short bool // not all are kept
	late  map[string]bool
	wake  chan struct{} // holds one
}

// share is that of one Secret.
type share struct {
	uid   types.UID
	since time.Time
	size  int // what it takes, also if it is not kept
	value []byte
	// why it is not kept; empty if it may be.
	why string
	// unread: it may be kept, and was dropped before.
	unread bool
}

func newShares(needed func(string) (time.Time, bool), told func(string)) *shares {
	return &shares{needed: needed, told: told, all: map[string]*share{}, late: map[string]bool{}, wake: make(chan struct{}, 1)}
}

// change changes the shares, divides them anew, and tells of those that are kept no more, or may be kept again.
func (s *shares) change(change func()) {
	s.mu.Lock()
	change()
	again := s.divide()
	s.mu.Unlock()
	for _, name := range again {
		s.told(name)
	}
}

// put keeps the kubeconfig in a Secret, if a Cluster needs it.
func (s *shares) put(full *corev1.Secret) {
	if isKubeconfig(full) {
		s.change(func() { s.store(full) })
	}
}

// putLate is put for a Secret that was read. What a watch has shown meanwhile is newer.
func (s *shares) putLate(full *corev1.Secret) {
	s.change(func() {
		if k := s.all[full.Name]; k == nil || k.unread {
			s.store(full)
		}
	})
}

func (s *shares) store(full *corev1.Secret) {
	s.drop(full.Name)
	since, ok := s.needed(full.Name)
	if !ok {
		return
	}
	k := &share{uid: full.UID, since: since, value: full.Data[KubeconfigKey]}
	if k.size = len(k.value); k.size > MaxKubeconfig {
		k.why = fmt.Sprintf("its key %q has %d bytes: at most %d are read", KubeconfigKey, k.size, MaxKubeconfig)
		k.value, k.size = nil, 0
	}
	s.all[full.Name] = k
	s.sum += k.size
}

// forget drops the kubeconfig of a Secret that was deleted.
func (s *shares) forget(gone *corev1.Secret) {
	s.change(func() {
		if k := s.all[gone.Name]; k != nil && k.uid == gone.UID {
			s.drop(gone.Name)
		}
	})
}

// release drops a kubeconfig that no Cluster needs any more.
func (s *shares) release(name string) { s.change(func() { s.drop(name) }) }

// only drops the kubeconfigs of all Secrets that are not in a store.
func (s *shares) only(store toolscache.Store) {
	there := map[string]bool{}
	for _, o := range store.List() {
		if secret, ok := o.(*corev1.Secret); ok {
			there[secret.Name] = true
		}
	}
	s.change(func() {
		for name := range s.all {
			if !there[name] {
				s.drop(name)
			}
		}
	})
}

func (s *shares) drop(name string) {
	if k := s.all[name]; k != nil {
		s.sum -= k.size
		delete(s.all, name)
	}
}

// divide keeps those of the oldest Clusters that fit. It returns the names of those that are kept no more, or may be kept
// again.
func (s *shares) divide() (again []string) {
	if s.sum <= maxFleet && !s.short {
		return nil
	}
	left := maxFleet
	s.short = false
	for _, name := range slices.SortedFunc(maps.Keys(s.all), s.older) {
		k := s.all[name]
		fits := k.size <= left
		if fits {
			left -= k.size
		} else {
			s.short = true
		}
		switch {
		case fits && k.why == tooMany:
			k.why, k.unread = "", true
		case !fits && k.why == "":
			k.why, k.unread, k.value = tooMany, false, nil
		default:
			continue
		}
		again = append(again, name)
	}
	return again
}

// older orders Secrets by the age of their Clusters.
func (s *shares) older(a, b string) int {
	return cmp.Or(s.all[a].since.Compare(s.all[b].since), strings.Compare(a, b))
}

// show returns a Secret with what is kept of its kubeconfig, and has it read if a Cluster has come to need it.
func (s *shares) show(slim *corev1.Secret) *corev1.Secret {
	s.mu.Lock()
	defer s.mu.Unlock()
	shown := *slim
	switch k := s.all[slim.Name]; {
	case k == nil || k.unread:
		shown.Annotations = map[string]string{unread: "true"}
		if _, ok := s.needed(slim.Name); ok {
			s.late[slim.Name] = true
			wake.Wake(s.wake)
		}
	case k.why != "":
		shown.Annotations = map[string]string{refused: k.why}
	case k.value != nil:
		shown.Data = map[string][]byte{KubeconfigKey: k.value}
	}
	return &shown
}

// nextLate returns the name of a kubeconfig that is to be read.
func (s *shares) nextLate() (name string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.late {
		delete(s.late, name)
		return name, true
	}
	return "", false
}

// readLate reads the kubeconfigs that Clusters have come to need, one after the other, until ctx ends.
func (s *Store) readLate(ctx context.Context, fleet string, of *shares) {
	for wake.For(ctx, s.Timers, -1, of.wake) == nil {
		for name, ok := of.nextLate(); ok && ctx.Err() == nil; name, ok = of.nextLate() {
			err := s.readOne(ctx, fleet, name, of)
			if apierrors.IsNotFound(err) {
				continue // a watch shows that soon
			}
			if err != nil && ctx.Err() == nil {
				s.Log.V(1).Info("A kubeconfig cannot be read", "fleet", fleet, "secret", name, "err", err.Error())
				_ = wake.For(ctx, s.Timers, askFirst, nil) // the loop sees that ctx has ended
			}
			s.Seen(ctx, fleet, name) // whoever needs it looks at it, and asks again if it was not read
		}
	}
}

func (s *Store) readOne(ctx context.Context, fleet, name string, of *shares) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	full, err := s.Client.CoreV1().Secrets(fleet).Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		of.putLate(full)
	}
	return err
}

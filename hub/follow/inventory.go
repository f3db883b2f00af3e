package follow

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/labelled"
)

const (
	// maxMarked is how many objects of a kind sets may have in a member.
	maxMarked = 10_000
	// requestTimeout bounds a request to a member.
	requestTimeout = 10 * time.Second
	// kindPause is the pause before a kind is asked for again, and 10 % more at most. It bounds how late a new definition
	// is found.
	kindPause = 3 * time.Second
)

var (
	errNotListed = errors.New("what sets have of this kind is not known yet")
	errNoKind    = errors.New("the cluster does not serve this kind in this version")
)

// kind is how a member serves a kind.
type kind struct {
	schema.GroupVersionResource
	namespaced bool
}

// marked is an object with the label of a set. One that is gone is kept until its set has looked.
type marked struct {
	set        string
	uid        types.UID
	version    string
	generation int64
	gone       bool
}

// inventory is what sets have in a member, by the kind. Watches show it.
type inventory struct {
	tenants func() *rest.Config
	// seen is called with the identity of a set when one of its objects may have been changed by others, and with nothing
	// when a kind is known that was not.
	seen func(set string)
	// watches are the goroutines.
	watches *sync.WaitGroup

	mu sync.Mutex // guards what follows, and all kindStates; never held across I/O
	of map[schema.GroupVersionKind]*kindState
}

// kindState is what is known of a kind.
type kindState struct {
	kind
	end    context.CancelFunc
	listed string // the version of the last list
	err    error  // why nothing is known
	of     map[types.NamespacedName]marked
}

// start watches a kind until ctx ends, unless it is watched. It returns what is known, or why nothing is.
func (v *inventory) start(ctx context.Context, of schema.GroupVersionKind) (kind, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.of[of]
	if s == nil {
		ctx, end := context.WithCancel(ctx)
		s = &kindState{end: end, err: errNotListed, of: map[types.NamespacedName]marked{}}
		v.of[of] = s
		v.watches.Go(func() { v.follow(ctx, of, s) })
	}
	return s.kind, s.err
}

// keep ends the watches of kinds that no set has.
func (v *inventory) keep(used map[schema.GroupVersionKind]bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for of, s := range v.of {
		if !used[of] {
			s.end()
			delete(v.of, of)
		}
	}
}

// follow watches a kind until ctx ends. A watch that has failed or ended begins again after a pause.
func (v *inventory) follow(ctx context.Context, of schema.GroupVersionKind, s *kindState) {
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		err := v.watch(ctx, of, s)
		if apierrors.IsNotFound(err) {
			err = errNoKind // its definition may be gone again
		}
		if err != nil {
			v.mu.Lock()
			defer v.mu.Unlock()
			s.err = err
		}
	}, kindPause, 0.1, true)
}

func (v *inventory) watch(ctx context.Context, of schema.GroupVersionKind, s *kindState) error {
	k, err := find(v.tenants(), of)
	if err != nil {
		return err
	}
	return labelled.Watch{
		Client: metadata.NewForConfigOrDie(v.tenants()).Resource(k.GroupVersionResource), Selector: v1alpha1.SetLabel,
		Most: maxMarked,
		Listed: func(list *metav1.PartialObjectMetadataList) error {
			v.noteList(s, of, k, list)
			return nil
		},
		Changed: func(how watch.EventType, o *metav1.PartialObjectMetadata) error {
			return v.note(s, of, how, o)
		},
	}.Run(ctx)
}

func (v *inventory) noteList(
	s *kindState, of schema.GroupVersionKind, k kind, list *metav1.PartialObjectMetadataList,
) {
	v.mu.Lock()
	sets := map[string]bool{"": s.err != nil}
	for _, is := range s.of {
		sets[is.set] = true
	}
	s.kind, s.err, s.listed, s.of = k, nil, list.ResourceVersion, map[types.NamespacedName]marked{}
	for i := range list.Items {
		if name, is, ok := markedOf(of.GroupKind(), &list.Items[i]); ok {
			s.of[name], sets[is.set] = is, true
		}
	}
	v.mu.Unlock()
	for set, is := range sets {
		if is {
			v.seen(set)
		}
	}
}

func (v *inventory) note(
	s *kindState, of schema.GroupVersionKind, how watch.EventType, o *metav1.PartialObjectMetadata,
) error {
	name, is, ok := markedOf(of.GroupKind(), o)
	is.gone = how == watch.Deleted || !ok
	v.mu.Lock()
	was, known := s.of[name]
	switch {
	case !ok && !known:
		v.mu.Unlock()
		return nil
	case !ok:
		is.set = was.set
	case !known && len(s.of) >= maxMarked:
		v.mu.Unlock()
		return labelled.ErrTooMany // a list shows how many there are, without those that have gone
	}
	s.of[name] = is
	v.mu.Unlock()
	if status := known && !is.gone && !was.gone && is.generation != 0 && is.generation == was.generation; !status {
		v.seen(is.set)
	}
	return nil
}

// markedOf reads an object. ok: its label is not one that was copied from another object.
func markedOf(of schema.GroupKind, o *metav1.PartialObjectMetadata) (name types.NamespacedName, is marked, ok bool) {
	value := o.Labels[v1alpha1.SetLabel]
	set, _, _ := strings.Cut(value, "-")
	return types.NamespacedName{Namespace: o.Namespace, Name: o.Name},
		marked{set: set, uid: o.UID, version: o.ResourceVersion, generation: o.Generation},
		value == label(set, id{of, o.Namespace, o.Name})
}

// setsObjects returns the objects of a set of one kind.
func (v *inventory) setsObjects(of schema.GroupVersionKind, set string) map[types.NamespacedName]marked {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := map[types.NamespacedName]marked{}
	if s := v.of[of]; s != nil && s.err == nil {
		for name, is := range s.of {
			if is.set == set && !is.gone {
				all[name] = is
			}
		}
	}
	return all
}

// object returns what is known of one object.
func (v *inventory) object(of schema.GroupVersionKind, name types.NamespacedName) (is marked, listed string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s := v.of[of]; s != nil {
		return s.of[name], s.listed
	}
	return marked{}, ""
}

// drifted reports whether an object that a set has applied was changed or deleted by others since. Watches may be late:
// what they show counts if it is later than the version that was applied.
func (v *inventory) drifted(of schema.GroupVersionKind, name types.NamespacedName, applied marked) bool {
	is, listed := v.object(of, name)
	switch {
	case is.version == "":
		return later(listed, applied.version)
	case !later(is.version, applied.version):
		return false
	case is.gone, is.set != applied.set, is.uid != applied.uid:
		return true
	default:
		return is.generation == 0 || is.generation != applied.generation
	}
}

// later reports whether a resource version is later than another one. API servers whose versions are no numbers show
// changes that look like what was applied: these are repaired on the interval.
func later(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}

// find asks a member how it serves a kind. The config is not for anything else.
func find(config *rest.Config, of schema.GroupVersionKind) (kind, error) {
	config.AcceptContentTypes, config.Timeout = transport.Plain, requestTimeout
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return kind{}, err
	}
	all, err := client.ServerResourcesForGroupVersion(of.GroupVersion().String())
	if err != nil {
		return kind{}, err
	}
	for _, r := range all.APIResources {
		if r.Kind == of.Kind && len(r.Verbs) > 0 && !strings.Contains(r.Name, "/") {
			return kind{of.GroupVersion().WithResource(r.Name), r.Namespaced}, nil
		}
	}
	return kind{}, errNoKind
}

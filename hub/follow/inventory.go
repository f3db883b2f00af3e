package follow

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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
	// kindPause is the pause before a kind is listed again whose watch has ended, or that is not served yet.
	kindPause = 1500 * time.Millisecond
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

// marked is an object with the label of a set.
type marked struct {
	set        string
	uid        types.UID
	version    string
	generation int64
}

// member is one that the manager has engaged, with what sets have there, by the kind. Watches show it.
type member struct {
	ended   context.Context
	passes  chan struct{} // holds those under way
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
	err error // why nothing is known
	of  map[types.NamespacedName]marked
}

// start watches a kind unless it is watched. It returns what is known, or why nothing is.
func (v *member) start(of schema.GroupVersionKind) (kind, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.of[of]
	if s == nil {
		s = &kindState{err: errNotListed, of: map[types.NamespacedName]marked{}}
		v.of[of] = s
		v.watches.Go(func() { v.follow(v.ended, of, s) })
	}
	return s.kind, s.err
}

// follow watches a kind until ctx ends.
func (v *member) follow(ctx context.Context, of schema.GroupVersionKind, s *kindState) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		err := v.watch(ctx, of, s)
		if apierrors.IsNotFound(err) {
			err = errNoKind // its definition may be gone again
		}
		if err != nil {
			v.mu.Lock()
			s.err = err
			v.mu.Unlock()
		}
	}, kindPause)
}

func (v *member) watch(ctx context.Context, of schema.GroupVersionKind, s *kindState) error {
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

func (v *member) noteList(
	s *kindState, of schema.GroupVersionKind, k kind, list *metav1.PartialObjectMetadataList,
) {
	v.mu.Lock()
	sets := map[string]bool{}
	if s.err != nil {
		sets[""] = true
	}
	for _, is := range s.of {
		sets[is.set] = true
	}
	s.kind, s.err, s.of = k, nil, map[types.NamespacedName]marked{}
	for i := range list.Items {
		if name, is, ok := markedOf(of.GroupKind(), &list.Items[i]); ok {
			s.of[name], sets[is.set] = is, true
		}
	}
	v.mu.Unlock()
	for set := range sets {
		v.seen(set)
	}
}

func (v *member) note(
	s *kindState, of schema.GroupVersionKind, how watch.EventType, o *metav1.PartialObjectMetadata,
) error {
	name, is, ok := markedOf(of.GroupKind(), o)
	gone := how == watch.Deleted || !ok
	v.mu.Lock()
	was, known := s.of[name]
	switch {
	case gone:
		delete(s.of, name)
		is.set = was.set
	case !known && len(s.of) >= maxMarked:
		v.mu.Unlock()
		return labelled.ErrTooMany // a list shows how many there are
	default:
		s.of[name] = is
	}
	v.mu.Unlock()
	status := known && is.generation != 0 && is.generation == was.generation
	if gone && known || !gone && !status {
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
func (v *member) setsObjects(of schema.GroupVersionKind, set string) map[types.NamespacedName]marked {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := map[types.NamespacedName]marked{}
	if s := v.of[of]; s != nil && s.err == nil {
		maps.Copy(all, s.of)
	}
	maps.DeleteFunc(all, func(_ types.NamespacedName, is marked) bool { return is.set != set })
	return all
}

// object returns what a watch shows of one object: nothing, if it is not there.
func (v *member) object(of schema.GroupVersionKind, name types.NamespacedName) marked {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s := v.of[of]; s != nil {
		return s.of[name]
	}
	return marked{}
}

// drifted reports whether a watch shows another object than the one that a set has applied. Watches may be late: an
// apply of what is in place changes nothing.
func drifted(shown, applied marked) bool {
	return shown.uid != applied.uid || shown.set != applied.set || shown.generation != applied.generation ||
		shown.generation == 0 && shown.version != applied.version
}

// find asks a member how it serves a kind.
func find(config *rest.Config, of schema.GroupVersionKind) (kind, error) {
	config = rest.CopyConfig(config)
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

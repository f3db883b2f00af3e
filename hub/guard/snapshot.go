package guard

import (
	"context"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// The resources whose objects a Keeper keeps.
const (
	policiesResource = "validatingadmissionpolicies"
	bindings         = "validatingadmissionpolicybindings"
)

const (
	// oneMetadata and listMetadata request metadata without specs, also as the answer to a write.
	oneMetadata  = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	listMetadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	// page is how many objects a page has, and pages how many pages are read per resource.
	page, pages = 100, 20
)

// metadata decodes answers to such requests.
var metadata = func() runtime.Decoder {
	s := runtime.NewScheme()
	utilruntime.Must(metav1.AddMetaToScheme(s))
	return serializer.NewCodecFactory(s).UniversalDeserializer()
}()

// snapshot holds the metadata of the objects that hubs keep in a member.
type snapshot map[key]metav1.ObjectMeta

type key struct{ resource, name string }

// mark identifies what was stored by one write. Every change of a spec raises the generation.
type mark struct {
	uid        types.UID
	generation int64
}

func markOf(o metav1.ObjectMeta) mark { return mark{o.UID, o.Generation} }

// store is what hubs keep in one member: the snapshot of it, and all requests that read or write it.
type store struct {
	Options

	mu     sync.Mutex
	stale  bool // something was written since the snapshot, so the next turn takes another
	stored snapshot
	// left holds what this store wrote last. An object with another mark was changed by others.
	left map[key]mark
}

func newStore(o Options) *store {
	return &store{Options: o, stale: true, stored: snapshot{}, left: map[key]mark{}}
}

// forget has everything written again.
func (s *store) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale, s.left = true, map[key]mark{}
}

// isStale reports whether anything was written since the snapshot was taken.
func (s *store) isStale() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stale
}

// read takes the snapshot. Where objects cannot be listed, which unlisted says, it reads the guard's by their names.
func (s *store) read(ctx context.Context) (unlisted, err error) {
	stored := snapshot{}
	unlisted = s.list(ctx, policiesResource, stored)
	if unlisted == nil {
		unlisted = s.list(ctx, bindings, stored)
	}
	switch {
	case errors.Is(unlisted, ErrUnsupported):
		return nil, unlisted
	case unlisted != nil:
		if stored, err = s.readGuard(ctx); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored, s.stale = stored, false
	return unlisted, nil
}

// readGuard reads the guard's objects.
func (s *store) readGuard(ctx context.Context) (snapshot, error) {
	stored := snapshot{}
	for _, p := range Policies() {
		for _, resource := range []string{policiesResource, bindings} {
			o, err := s.get(ctx, resource, p.Policy.Name)
			if err != nil && !apierrors.IsNotFound(err) {
				return nil, err
			}
			if err == nil {
				stored[key{resource, o.Name}] = o
			}
		}
	}
	return stored, nil
}

// list adds the objects of a resource that hubs keep in the member.
func (s *store) list(ctx context.Context, resource string, to snapshot) error {
	o := metav1.ListOptions{LabelSelector: v1alpha1.ManagedByLabel + "=" + v1alpha1.ManagedByValue, Limit: page}
	for range pages {
		raw, err := s.rest().Get().Resource(resource).VersionedParams(&o, scheme.ParameterCodec).
			SetHeader("Accept", listMetadata).Do(ctx).Raw()
		var list metav1.PartialObjectMetadataList
		if err == nil {
			kind := metav1.SchemeGroupVersion.WithKind("PartialObjectMetadataList")
			_, _, err = metadata.Decode(raw, &kind, &list)
		}
		if apierrors.IsNotFound(err) {
			err = fmt.Errorf("%w (%w)", ErrUnsupported, err)
		}
		if err != nil {
			return fmt.Errorf("list the %s: %w", resource, orForbidden(err))
		}
		for i := range list.Items {
			to[key{resource, list.Items[i].Name}] = list.Items[i].ObjectMeta
		}
		if o.Continue = list.Continue; o.Continue == "" {
			return nil
		}
	}
	return fmt.Errorf("list the %s: the cluster has more than %d with the label %s: remove those that are not the hub's",
		resource, page*pages, o.LabelSelector)
}

func (s *store) rest() rest.Interface { return s.Member.AdmissionregistrationV1().RESTClient() }

func (s *store) get(ctx context.Context, resource, name string) (metav1.ObjectMeta, error) {
	o, err := answered(ctx, s.rest().Get().Resource(resource).Name(name))
	if err != nil {
		err = fmt.Errorf("read %s %s: %w", resource, name, err)
	}
	return o, err
}

// answered sends a request and returns the metadata of the answer.
func answered(ctx context.Context, r *rest.Request) (metav1.ObjectMeta, error) {
	raw, err := r.SetHeader("Accept", oneMetadata).Do(ctx).Raw()
	if err != nil {
		return metav1.ObjectMeta{}, orForbidden(err)
	}
	var o metav1.PartialObjectMetadata
	kind := metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata")
	_, _, err = metadata.Decode(raw, &kind, &o)
	return o.ObjectMeta, err
}

// object is a policy or a binding.
type object interface {
	metav1.Object
	runtime.Object
}

// change is what a write did to what the member enforces. From replaced on, what was seen before does not count.
type change int

const (
	unchanged change = iota
	updated          // from what this store wrote
	replaced         // what was stored was not known to be this store's
	mended           // others had changed what this store wrote, also if the write has failed
)

// ensurePolicy writes a policy and its binding, unless they are as this store left them.
func (s *store) ensurePolicy(ctx context.Context, p Policy) (change, error) {
	policy, err := s.ensure(ctx, policiesResource, p.Policy)
	if err != nil {
		return policy, err
	}
	binding, err := s.ensure(ctx, bindings, p.Binding)
	return max(policy, binding), err
}

// ensure writes the whole object instead of using server-side apply. An apply would keep what others have added to
// a list in the spec, such as a match condition that exempts everyone. Labels and annotations of others stay. An
// object that this store has not written yet is written, too: a write without effect keeps its mark.
func (s *store) ensure(ctx context.Context, resource string, want object) (change, error) {
	id := key{resource, want.GetName()}
	s.mu.Lock()
	have, exists := s.stored[id]
	left, known := s.left[id]
	s.mu.Unlock()
	if known && exists && markOf(have) == left &&
		labels.SelectorFromSet(want.GetLabels()).Matches(labels.Set(have.Labels)) &&
		labels.SelectorFromSet(want.GetAnnotations()).Matches(labels.Set(have.Annotations)) {
		return unchanged, nil
	}
	if !s.MayWrite() {
		return unchanged, ErrMayNotWrite
	}
	is := unchanged
	if known && (!exists || markOf(have) != left) {
		is = mended
	}
	s.note(id, nil) // if no answer arrives, it is not known what is stored
	got, err := s.write(ctx, resource, have, exists, want)
	if err != nil {
		return is, fmt.Errorf("install %s %s: %w", resource, id.name, err)
	}
	s.note(id, &got)
	switch changed := !exists || markOf(got) != markOf(have); {
	case changed && !known:
		is = replaced
	case changed:
		is = max(is, updated)
	}
	return is, nil
}

// note records the result of a write. With nil, the snapshot is outdated.
func (s *store) note(id key, got *metav1.ObjectMeta) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if got == nil {
		s.stale = true
		delete(s.left, id)
		return
	}
	s.stored[id], s.left[id] = *got, markOf(*got)
}

// write creates an object, or replaces the stored one.
func (s *store) write(ctx context.Context, resource string, have metav1.ObjectMeta, exists bool, want object) (
	got metav1.ObjectMeta, err error) {
	o := want.DeepCopyObject().(object) // the client sets its kind, and members share it
	if !exists {
		got, err = answered(ctx, s.rest().Post().Resource(resource).Body(o))
		if apierrors.IsNotFound(err) { // the kind is missing
			return got, fmt.Errorf("%w (%w)", ErrUnsupported, err)
		}
		if !apierrors.IsAlreadyExists(err) {
			return got, err
		}
		if have, err = s.get(ctx, resource, o.GetName()); err != nil { // it has lost its label
			return have, err
		}
	}
	o.SetUID(have.UID)
	o.SetResourceVersion(have.ResourceVersion)
	o.SetFinalizers(have.Finalizers)
	o.SetOwnerReferences(have.OwnerReferences)
	o.SetLabels(labels.Merge(have.Labels, o.GetLabels()))
	o.SetAnnotations(labels.Merge(have.Annotations, o.GetAnnotations()))
	return answered(ctx, s.rest().Put().Resource(resource).Name(o.GetName()).Body(o))
}

// remove removes an object. A missing one counts as removed.
func (s *store) remove(ctx context.Context, resource, name string) error {
	if !s.MayWrite() {
		return ErrMayNotWrite
	}
	err := s.rest().Delete().Resource(resource).Name(name).Body(&metav1.DeleteOptions{}).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) {
		s.note(key{resource, name}, nil)
		return fmt.Errorf("remove %s %s: %w", resource, name, orForbidden(err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.stored, key{resource, name})
	delete(s.left, key{resource, name})
	return nil
}

// lacks reports whether a policy of that name or its binding is missing.
func (s *store) lacks(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, policy := s.stored[key{policiesResource, name}]
	_, binding := s.stored[key{bindings, name}]
	return !policy || !binding
}

// boundTo returns the namespaces that a stored binding names, as its mark lists them. ok is false if it is not
// stored.
func (s *store) boundTo(name string) (bound string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.stored[key{bindings, name}]
	return o.Annotations[boundAnnotation], ok
}

// fencesIn returns the stored fences of this hub and fleet, except the fences with these names and of these policies.
func (s *store) fencesIn(resource string, kept, policies map[string]bool) (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, o := range s.stored {
		if id.resource == resource && o.Labels[v1alpha1.FenceLabel] == s.Fleet &&
			o.Annotations[v1alpha1.HubAnnotation] == s.Hub && !kept[id.name] &&
			!policies[o.Annotations[v1alpha1.PolicyAnnotation]] {
			names = append(names, id.name)
		}
	}
	return names
}

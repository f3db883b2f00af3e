package follow

import (
	"context"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet/secrets"
)

// sourcesOf are all ConfigMaps, or all Secrets, of a fleet.
type sourcesOf struct {
	fleet string
	kind  v1alpha1.SourceKind
}

// sources reads the sources of sets, and enqueues the sets whose sources change.
type sources struct {
	*requests
	live     client.Reader
	metadata metadata.Interface
	work     *sync.WaitGroup // watches

	mu       sync.Mutex
	watching map[sourcesOf]context.CancelFunc
}

// read reads the sources of a set from the hub's API server. What is wrong with one of them is its problem; an
// error may pass.
func (s *sources) read(ctx context.Context, set *v1alpha1.LeaderResourceSet) ([]source, error) {
	all, size := make([]source, 0, len(set.Spec.Resources)), 0
	for _, r := range set.Spec.Resources {
		if size > maxSources {
			break // the first ones are too much already
		}
		is := source{LeaderResource: r}
		data, err := s.readOne(ctx, types.NamespacedName{Namespace: set.Namespace, Name: r.Name}, r.Kind)
		var message string
		switch name := string(r.Kind) + " " + r.Name; {
		case apierrors.IsNotFound(err):
			message = "there is no " + name + " in the namespace of the set: create it, or take it out of the set"
		case apierrors.IsForbidden(err):
			message = "the hub may not read it: update the ClusterRole " + secrets.Role + " by the manifests of this version"
		case err != nil:
			return nil, err
		case data == nil:
			message = fmt.Sprintf("the Secret must have the type %s: create it again with that type", v1alpha1.SourceSecretType)
		}
		for _, value := range data {
			size += len(value)
		}
		if is.data = data; message != "" {
			is.problem = &v1alpha1.ResourceProblem{
				Object: string(r.Kind) + " " + r.Name, Reason: reason.InvalidSource, Message: message,
			}
		}
		all = append(all, is)
	}
	return all, nil
}

// readOne returns the data of a source, or nil if it is a Secret of another type.
func (s *sources) readOne(
	ctx context.Context, key types.NamespacedName, kind v1alpha1.SourceKind,
) (map[string][]byte, error) {
	data := map[string][]byte{}
	if kind == v1alpha1.SourceSecret {
		secret := &corev1.Secret{}
		if err := s.live.Get(ctx, key, secret); err != nil || secret.Type != v1alpha1.SourceSecretType {
			return nil, err
		}
		maps.Copy(data, secret.Data)
		return data, nil
	}
	from := &corev1.ConfigMap{}
	err := s.live.Get(ctx, key, from)
	maps.Copy(data, from.BinaryData)
	for name, value := range from.Data {
		data[name] = []byte(value)
	}
	return data, err
}

// watch watches the kinds of sources that a set has, by their metadata.
func (s *sources) watch(set *v1alpha1.LeaderResourceSet) {
	for _, r := range set.Spec.Resources {
		of := sourcesOf{set.Namespace, r.Kind}
		s.mu.Lock()
		_, is := s.watching[of]
		if !is {
			ctx, end := context.WithCancel(s.running)
			s.watching[of] = end
			s.work.Go(func() { s.follow(ctx, of) })
		}
		s.mu.Unlock()
	}
}

// follow watches sources until ctx ends. An informer goes on after errors.
func (s *sources) follow(ctx context.Context, of sourcesOf) {
	resource := corev1.SchemeGroupVersion.WithResource("configmaps")
	if of.kind == v1alpha1.SourceSecret {
		resource = corev1.SchemeGroupVersion.WithResource("secrets")
	}
	informer, err := secrets.NewInformer(s.metadata, resource, of.fleet, onlyName, func(o any) (any, error) {
		if full, ok := o.(*metav1.PartialObjectMetadata); ok {
			return onlyName(full), nil
		}
		return o, nil
	})
	if err == nil {
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { s.sourceChanged(of, o) },
			UpdateFunc: func(was, is any) {
				a, b := was.(*metav1.PartialObjectMetadata), is.(*metav1.PartialObjectMetadata)
				if a.ResourceVersion != b.ResourceVersion {
					s.sourceChanged(of, is)
				}
			},
			DeleteFunc: func(o any) { s.sourceChanged(of, o) },
		})
	}
	if err != nil {
		log.FromContext(ctx).Error(err, "Sources of resource sets cannot be watched", "fleet", of.fleet)
		return
	}
	informer.RunWithContext(ctx)
}

// onlyName keeps the name and the version of an object.
func onlyName(full *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: full.Namespace, Name: full.Name, ResourceVersion: full.ResourceVersion,
	}}
}

// sourceChanged enqueues the sets that have a source.
func (s *sources) sourceChanged(of sourcesOf, o any) {
	name, err := toolscache.DeletionHandlingObjectToName(o)
	if err != nil {
		return
	}
	sets, _ := s.setsOf(of.fleet) // when the cache has started, all is enqueued
	for _, set := range sets {
		for _, r := range set.Spec.Resources {
			if r.Kind == of.kind && r.Name == name.Name {
				s.changed(client.ObjectKeyFromObject(&set), "")
				break
			}
		}
	}
}

// keep ends the watches of sources in a fleet that no set has any more.
func (s *sources) keep(fleetName string) {
	used := map[sourcesOf]bool{}
	sets, err := s.setsOf(fleetName)
	if err != nil {
		return
	}
	for _, set := range sets {
		for _, r := range set.Spec.Resources {
			used[sourcesOf{fleetName, r.Kind}] = true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for of, end := range s.watching {
		if of.fleet == fleetName && !used[of] {
			end()
			delete(s.watching, of)
		}
	}
}

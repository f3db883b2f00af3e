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
func (s *sources) read(ctx context.Context, set *v1alpha1.LeaderResourceSet) (all []source, err error) {
	size := 0
	for _, r := range set.Spec.Resources {
		if size > maxSources {
			break // the first ones are too much already
		}
		is, err := s.readOne(ctx, set.Namespace, r)
		if err != nil {
			return nil, err
		}
		for _, value := range is.data {
			size += len(value)
		}
		all = append(all, is)
	}
	return all, nil
}

func (s *sources) readOne(ctx context.Context, namespace string, r v1alpha1.LeaderResource) (source, error) {
	var config corev1.ConfigMap
	var secret corev1.Secret
	var o client.Object = &config
	if r.Kind == v1alpha1.SourceSecret {
		o = &secret
	}
	is, name, message := source{LeaderResource: r, data: map[string][]byte{}}, string(r.Kind)+" "+r.Name, ""
	switch err := s.live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: r.Name}, o); {
	case apierrors.IsNotFound(err):
		message = "there is no " + name + " in the namespace of the set: create it, or take it out of the set"
	case apierrors.IsForbidden(err):
		message = "the hub may not read it: update the ClusterRole " + secrets.Role + " by the manifests of this version"
	case err != nil:
		return is, err
	case r.Kind == v1alpha1.SourceSecret && secret.Type != v1alpha1.SourceSecretType:
		message = fmt.Sprintf("the Secret must have the type %s: create it again with that type", v1alpha1.SourceSecretType)
	}
	if message != "" {
		is.problem = &v1alpha1.ResourceProblem{Object: name, Reason: reason.InvalidSource, Message: message}
		return is, nil
	}
	maps.Copy(is.data, secret.Data)
	maps.Copy(is.data, config.BinaryData)
	for key, value := range config.Data {
		is.data[key] = []byte(value)
	}
	return is, nil
}

// watch watches the kinds of sources that a set has, by their metadata, until the last set of the fleet is gone.
func (s *sources) watch(set *v1alpha1.LeaderResourceSet) {
	for _, r := range set.Spec.Resources {
		of := sourcesOf{set.Namespace, r.Kind}
		s.mu.Lock()
		if s.watching[of] == nil {
			ctx, end := context.WithCancel(s.running)
			s.watching[of] = end
			s.work.Go(func() { s.follow(ctx, of) })
		}
		s.mu.Unlock()
	}
}

// end ends the watches of a fleet's sources, if it has no set. A set that is in no list yet begins to watch after this.
func (s *sources) end(fleetName string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sets, err := s.setsOf(fleetName); err != nil || len(sets) > 0 {
		return
	}
	for of, end := range s.watching {
		if of.fleet == fleetName {
			end()
			delete(s.watching, of)
		}
	}
}

// follow watches sources until ctx ends. An informer goes on after errors.
func (s *sources) follow(ctx context.Context, of sourcesOf) {
	resource := corev1.SchemeGroupVersion.WithResource("configmaps")
	if of.kind == v1alpha1.SourceSecret {
		resource = corev1.SchemeGroupVersion.WithResource("secrets")
	}
	// What has not started refuses neither a transform nor a handler.
	informer, _ := secrets.NewInformer(s.metadata, resource, of.fleet, onlyName, func(o any) (any, error) {
		if full, ok := o.(*metav1.PartialObjectMetadata); ok {
			return onlyName(full), nil
		}
		return o, nil
	})
	_, _ = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { s.sourceChanged(of, o) },
		UpdateFunc: func(_, o any) { s.sourceChanged(of, o) },
		DeleteFunc: func(o any) { s.sourceChanged(of, o) },
	})
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
	name, _ := toolscache.DeletionHandlingObjectToName(o) // it has metadata
	sets, _ := s.setsOf(of.fleet)                         // when the cache has started, all is enqueued
	for _, set := range sets {
		for _, r := range set.Spec.Resources {
			if r.Kind == of.kind && r.Name == name.Name {
				s.changed(client.ObjectKeyFromObject(&set), "")
				break
			}
		}
	}
}

package follow

import (
	"context"
	"errors"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

// readSources reads the sources of a set from the hub's API server. What is wrong with one of them is its problem; an
// error may pass.
func (c *Controller) readSources(ctx context.Context, set *v1alpha1.LeaderResourceSet) ([]source, error) {
	all, size := make([]source, 0, len(set.Spec.Resources)), 0
	for _, r := range set.Spec.Resources {
		data, err := c.readSource(ctx, types.NamespacedName{Namespace: set.Namespace, Name: r.Name}, r.Kind)
		s, name := source{LeaderResource: r, data: data}, string(r.Kind)+" "+r.Name
		switch {
		case apierrors.IsNotFound(err):
			s.problem = new(problem(name, reason.InvalidSource,
				"there is no "+name+" in the namespace of the set: create it, or take it out of the set"))
		case apierrors.IsForbidden(err):
			s.problem = new(problem(name, reason.InvalidSource,
				"the hub may not read it: update the ClusterRole "+secrets.Role+" by the manifests of this version"))
		case errors.Is(err, errType):
			s.problem = new(problem(name, reason.InvalidSource, err.Error()))
		case err != nil:
			return nil, err
		}
		for _, value := range data {
			size += len(value)
		}
		if all = append(all, s); size > maxSources {
			break // these are too much already
		}
	}
	return all, nil
}

var errType = errors.New("the Secret must have the type " + v1alpha1.SourceSecretType +
	": create it again with that type")

// readSource returns the data of a source.
func (c *Controller) readSource(
	ctx context.Context, key types.NamespacedName, kind v1alpha1.SourceKind,
) (map[string][]byte, error) {
	if kind == v1alpha1.SourceSecret {
		secret := &corev1.Secret{}
		err := c.live.Get(ctx, key, secret)
		if err == nil && secret.Type != v1alpha1.SourceSecretType {
			return nil, errType
		}
		return secret.Data, err
	}
	from, data := &corev1.ConfigMap{}, map[string][]byte{}
	err := c.live.Get(ctx, key, from)
	maps.Copy(data, from.BinaryData)
	for name, value := range from.Data {
		data[name] = []byte(value)
	}
	return data, err
}

// watchSources watches the kinds of sources that a set has, by their metadata, until the Controller ends.
func (c *Controller) watchSources(set *v1alpha1.LeaderResourceSet) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range set.Spec.Resources {
		if of := (sourcesOf{set.Namespace, r.Kind}); !c.watching[of] {
			c.watching[of] = true
			c.work.Go(func() { c.followSources(c.running, of) })
		}
	}
}

// followSources watches sources until ctx ends. An informer goes on after errors.
func (c *Controller) followSources(ctx context.Context, of sourcesOf) {
	resource := corev1.SchemeGroupVersion.WithResource("configmaps")
	if of.kind == v1alpha1.SourceSecret {
		resource = corev1.SchemeGroupVersion.WithResource("secrets")
	}
	informer, err := secrets.NewInformer(c.Metadata, resource, of.fleet, onlyName, func(o any) (any, error) {
		if full, ok := o.(*metav1.PartialObjectMetadata); ok {
			return onlyName(full), nil
		}
		return o, nil
	})
	if err == nil {
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { c.sourceChanged(of, o) },
			UpdateFunc: func(was, is any) {
				a, b := was.(*metav1.PartialObjectMetadata), is.(*metav1.PartialObjectMetadata)
				if a.ResourceVersion != b.ResourceVersion {
					c.sourceChanged(of, is)
				}
			},
			DeleteFunc: func(o any) { c.sourceChanged(of, o) },
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
func (c *Controller) sourceChanged(of sourcesOf, o any) {
	name, err := toolscache.DeletionHandlingObjectToName(o)
	if err != nil {
		return
	}
	for _, set := range c.setsOf(context.Background(), of.fleet) {
		for _, r := range set.Spec.Resources {
			if r.Kind == of.kind && r.Name == name.Name {
				c.changed(client.ObjectKeyFromObject(&set), "")
				break
			}
		}
	}
}

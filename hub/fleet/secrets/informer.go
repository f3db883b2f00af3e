package secrets

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/seal"
)

// pageSize is how many Secrets, or sources of resource sets, are read at once where the API server does not stream
// lists, as before Kubernetes 1.34. Each has at most 1.5 MiB of metadata.
const pageSize = 20

// informer returns an informer of the Secrets' metadata in a namespace.
func (s *Store) informer(namespace string) (toolscache.SharedIndexInformer, error) {
	return NewInformer(s.Metadata, corev1.SchemeGroupVersion.WithResource("secrets"), namespace, reduced, slim)
}

// NewInformer returns an informer of the metadata of what tenants of the hub's API server write, a resource in one
// namespace. reduce drops what is not needed from the objects of a list, and slim from what a cache keeps.
func NewInformer(
	of metadata.Interface, resource schema.GroupVersionResource, namespace string,
	reduce func(*metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata, slim toolscache.TransformFunc,
) (toolscache.SharedIndexInformer, error) {
	objects := of.Resource(resource).Namespace(namespace)
	pages := reducedPages(objects, reduce)
	lists := &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			all, _, err := pages.List(ctx, metav1.ListOptions{})
			return all, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return objects.Watch(ctx, o)
		},
	}
	informer := toolscache.NewSharedIndexInformer(toolscache.ToListWatcherWithWatchListSemantics(lists, of),
		&metav1.PartialObjectMetadata{}, 0, toolscache.Indexers{})
	return informer, informer.SetTransform(slim)
}

// reducedPages returns a pager that reduces each page before it reads the next one. Its lists name no version, so the
// API server reads pages from etcd. From its cache it would return the list as a whole.
func reducedPages(
	objects metadata.ResourceInterface, reduce func(*metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata,
) *pager.ListPager {
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		page, err := objects.List(ctx, o)
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			page.Items[i] = *reduce(&page.Items[i])
		}
		return page, nil
	})
	pages.PageSize, pages.FullListIfExpired = pageSize, false
	return pages
}

// slim drops from a Secret's metadata what the hub does not read, before a cache keeps them. Of a Secret that the hub
// does not need it keeps the key.
func slim(o any) (any, error) {
	full, ok := o.(*metav1.PartialObjectMetadata)
	if !ok {
		return o, nil // it is slim
	}
	if full.Name != seal.SecretName && !strings.HasSuffix(full.Name, KubeconfigSuffix) {
		return toolscache.ExplicitKey(full.Namespace + "/" + full.Name), nil
	}
	return reduced(full), nil
}

// reduced returns what the hub reads of a Secret's metadata.
func reduced(full *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	slim := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: full.Namespace, Name: full.Name, ResourceVersion: full.ResourceVersion,
	}}
	if mark := seal.MarkOf(full); full.Name == seal.SecretName && mark != "" {
		slim.Annotations = map[string]string{v1alpha1.HubAnnotation: mark}
	}
	return slim
}

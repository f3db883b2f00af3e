package secrets

import (
	"context"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/seal"
)

const (
	// KubeconfigSuffix ends the names of the Secrets `<cluster>-kubeconfig` in which Cluster API keeps kubeconfigs.
	KubeconfigSuffix = "-kubeconfig"
	// KubeconfigKey is under what key they are there.
	KubeconfigKey = "value"
	// MaxKubeconfig bounds a kubeconfig that is kept, in bytes: a longer one would not be parsed.
	MaxKubeconfig = transport.MaxKubeconfig
	// pageSize is how many Secrets are listed at once. Each may have a megabyte.
	pageSize = 20
)

// slimmer shows the Secrets of a fleet's namespace without what the hub has no use for. Other programs keep theirs in the
// same namespace, and people may put anything there.
type slimmer struct{ *shares }

// listerWatcher lists in pages and slims each at once, so that not all of them are in memory together.
func (s slimmer) listerWatcher(client kubernetes.Interface, namespace string) toolscache.ListerWatcher {
	secrets := client.CoreV1().Secrets(namespace)
	lw := &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			all := &corev1.SecretList{}
			o.ResourceVersion, o.ResourceVersionMatch = "", "" // an API server's cache ignores the limit
			for o.Limit, o.Continue = pageSize, ""; ; {
				page, err := secrets.List(ctx, o)
				if err != nil {
					return nil, err
				}
				for i := range page.Items {
					s.put(&page.Items[i])
					if slim := slim(&page.Items[i]); slim != nil {
						all.Items = append(all.Items, *slim)
					}
				}
				all.ListMeta = metav1.ListMeta{ResourceVersion: page.ResourceVersion}
				if o.Continue = page.Continue; o.Continue == "" {
					return all, nil
				}
			}
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := secrets.Watch(ctx, o)
			if err != nil {
				return nil, err
			}
			return newSlimWatch(w, s.filter), nil
		},
	}
	return toolscache.ToListWatcherWithWatchListSemantics(lw, client)
}

// slimWatch is a watch whose events are filtered. It is not watch.Filter, whose goroutine waits for a reader for ever once
// the reader has stopped.
type slimWatch struct {
	watch.Interface
	result chan watch.Event
	stop   func()
}

func newSlimWatch(of watch.Interface, filter watch.FilterFunc) *slimWatch {
	stopped := make(chan struct{})
	w := &slimWatch{Interface: of, result: make(chan watch.Event), stop: sync.OnceFunc(func() { close(stopped) })}
	go func() {
		defer close(w.result)
		for e := range of.ResultChan() {
			e, shown := filter(e)
			if !shown {
				continue
			}
			select {
			case w.result <- e:
			case <-stopped:
				return
			}
		}
	}()
	return w
}

// ResultChan implements watch.Interface.
func (w *slimWatch) ResultChan() <-chan watch.Event { return w.result }

// Stop implements watch.Interface.
func (w *slimWatch) Stop() {
	w.stop()
	w.Interface.Stop()
}

// filter slims the Secret of an event. Events about Secrets that are of no use are dropped.
func (s slimmer) filter(e watch.Event) (watch.Event, bool) {
	secret, ok := e.Object.(*corev1.Secret)
	if !ok || e.Type == watch.Bookmark {
		return e, true
	}
	if e.Type == watch.Deleted {
		s.forget(secret)
	} else {
		s.put(secret)
	}
	slim := slim(secret)
	if slim == nil {
		return e, false
	}
	e.Object = slim
	return e, true
}

// slim returns what a watch keeps of a Secret: of the seal the mark and the key, of a kubeconfig that it is there, and of others
// nothing. The kubeconfig itself goes to the shares.
func slim(full *corev1.Secret) *corev1.Secret {
	slim := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: full.Namespace, Name: full.Name, UID: full.UID, ResourceVersion: full.ResourceVersion,
	}}
	switch {
	case full.Name == seal.SecretName:
		slim.Data = seal.Slim(full)
		if mark := seal.MarkOf(full); mark != "" {
			slim.Annotations = map[string]string{v1alpha1.HubAnnotation: mark}
		}
	case isKubeconfig(full):
	default:
		return nil
	}
	return slim
}

func isKubeconfig(s *corev1.Secret) bool { return strings.HasSuffix(s.Name, KubeconfigSuffix) }

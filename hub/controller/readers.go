package controller

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/leasecast/leasecast/hub/publish"
)

// watchReaders feeds what a member shows of its readers' registrations to the publisher,
// until the returned function is called. They have a watch of their own, because the
// member's cache holds the Leases of one label only. It is for speed: the publisher
// lists the readers when it matters, and needs no watch to hear from them. The news are for people.
func watchReaders(ctx context.Context, e engagement, p *publish.Publisher, n readerNews, logger logr.Logger) (stop func()) {
	client, err := kubernetes.NewForConfigAndClient(e.cluster.GetConfig(), e.cluster.GetHTTPClient())
	if err != nil {
		logger.Error(err, "The readers in the cluster cannot be watched", "reason", "Unwatched")
		return func() {}
	}
	leases := client.CoordinationV1().Leases(metav1.NamespaceAll)
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		// A watch that shows more than is kept holds it all in its cache. So it ends for a while.
		for {
			bounded, end := context.WithCancel(ctx)
			readersInformer(leases, p, n, func() {
				if p.TooManyReaders() != "" {
					end()
				}
			}).RunWithContext(bounded)
			end()
			rest, rested := context.WithTimeout(ctx, readersPause)
			<-rest.Done()
			rested()
			if ctx.Err() != nil {
				return
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// readersPause is for how long a watch of the registrations rests that has shown more than is kept.
const readersPause = time.Minute

// readersInformer watches the registrations in a member. It calls noted after each that the publisher has noted.
func readersInformer(leases coordinationclient.LeaseInterface, p *publish.Publisher, n readerNews, noted func()) toolscache.Controller {
	selector := publish.ReaderSelector().String()
	_, informer := toolscache.NewInformerWithOptions(toolscache.InformerOptions{
		ListerWatcher: &toolscache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.LabelSelector = selector
				return leases.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.LabelSelector = selector
				return leases.Watch(ctx, o)
			},
		},
		ObjectType: &coordinationv1.Lease{},
		Transform:  publish.SlimRegistration,
		Handler: toolscache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(o any, initial bool) {
				if l, ok := o.(*coordinationv1.Lease); ok {
					p.ObserveReader(l)
					n.came(l, initial)
					noted()
				}
			},
			UpdateFunc: func(_, o any) {
				if l, ok := o.(*coordinationv1.Lease); ok {
					p.ObserveReader(l)
					n.came(l, false)
					noted()
				}
			},
			DeleteFunc: func(o any) {
				if l, ok := o.(*coordinationv1.Lease); ok {
					p.ObserveReaderGone(l.UID)
					n.went(l.UID)
				}
				// What a new list merely lacks comes as something else, and is no end: its reader may still act.
				if unknown, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
					if l, ok := unknown.Obj.(*coordinationv1.Lease); ok {
						n.went(l.UID)
					}
				}
			},
		},
	})
	return informer
}

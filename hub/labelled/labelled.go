// Package labelled watches the metadata of the objects in a member that have a label.
package labelled

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
)

const (
	// listTimeout bounds a list. watchTime is how long a watch lasts at least; up to twice that.
	listTimeout, watchTime = 10 * time.Second, 5 * time.Minute
	// Pause is the pause before a resource is listed again whose watch has ended.
	Pause = 5 * time.Second
)

// ErrTooMany is wrapped where more objects have the label than are kept.
var ErrTooMany = errors.New("too many objects have the label")

// Watch is one watch of one resource.
type Watch struct {
	Client   metadata.ResourceInterface
	Selector string
	Most     int // objects in a list
	// Listed gets all objects there are, once the watch is open, and Changed what changes then. An error ends the watch.
	Listed  func(*metav1.PartialObjectMetadataList) error
	Changed func(how watch.EventType, o *metav1.PartialObjectMetadata) error
}

// Run lists, and watches until the watch ends or ctx does. A watch that has lasted as long as was asked for, or whose
// connection is gone, is no error: the next list shows what was missed.
func (w Watch) Run(ctx context.Context) error {
	listing, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	// Without a resource version an API server heeds the limit.
	list, err := w.Client.List(listing, metav1.ListOptions{LabelSelector: w.Selector, Limit: int64(w.Most)})
	switch {
	case err != nil:
		return err
	case list.Continue != "":
		return fmt.Errorf("%w: more than %d", ErrTooMany, w.Most)
	}
	seconds := int64((watchTime + rand.N(watchTime)).Seconds())
	changes, err := w.Client.Watch(ctx, metav1.ListOptions{
		LabelSelector: w.Selector, ResourceVersion: list.ResourceVersion, AllowWatchBookmarks: true, TimeoutSeconds: &seconds,
	})
	if err != nil {
		return err
	}
	defer changes.Stop()
	if err := w.Listed(list); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event, open := <-changes.ResultChan():
			if !open {
				return nil
			}
			o, ok := event.Object.(*metav1.PartialObjectMetadata)
			switch {
			case event.Type == watch.Error:
				return apierrors.FromObject(event.Object)
			case !ok, event.Type == watch.Bookmark:
				continue
			}
			if err := w.Changed(event.Type, o); err != nil {
				return err
			}
		}
	}
}

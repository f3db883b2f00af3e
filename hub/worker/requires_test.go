package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/workqueue"

	"github.com/leasecast/leasecast/hub/fleet"
)

// requiring is a Worker of which an hour's watch has shown these objects.
func requiring(of map[string]*requiredObjects) (*Worker, *changes) {
	c := &changes{}
	w := New(Options{Hub: c, Member: fleet.Member{Key: eastKey}})
	for name, objects := range of {
		w.required.of[schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: name}] = objects
	}
	return w, c
}

// changes notes for which namespaces decisions are enqueued.
type changes struct {
	Hub
	of []string
}

func (c *changes) Changed(_ fleet.Key, namespace string) { c.of = append(c.of, namespace) }

func objectsOf(err error, of map[string]objectHealth) *requiredObjects {
	o := &requiredObjects{err: err, of: map[types.NamespacedName]objectHealth{}}
	for name, is := range of {
		namespace, name, _ := strings.Cut(name, "/")
		o.of[types.NamespacedName{Namespace: namespace, Name: name}] = is
	}
	return o
}

func TestWorker_Required(t *testing.T) {
	sick, unread := objectHealth{unhealthy: "b is sick"}, objectHealth{err: errUnread}
	for name, test := range map[string]struct {
		shown     map[string]*requiredObjects
		unhealthy string
		err       error
	}{
		"nothing has the label": {map[string]*requiredObjects{"deployments": objectsOf(nil, nil)}, "", nil},
		"all is healthy": {map[string]*requiredObjects{
			"deployments": objectsOf(nil, map[string]objectHealth{"shop/a": {}, "bank/b": sick}),
		}, "", nil},
		"the first of two that are sick": {map[string]*requiredObjects{
			"deployments": objectsOf(nil, map[string]objectHealth{"shop/b": sick, "shop/a": {unhealthy: "a is sick"}}),
		}, "a is sick", nil},
		"one was not read": {map[string]*requiredObjects{
			"deployments": objectsOf(nil, map[string]objectHealth{"shop/a": unread}),
		}, "", errUnread},
		"one was not read, and one is sick": {map[string]*requiredObjects{
			"deployments": objectsOf(nil, map[string]objectHealth{"shop/a": unread, "shop/b": sick}),
		}, "b is sick", errUnread},
		"the watch is refused":  {map[string]*requiredObjects{"deployments": objectsOf(errNoRight, nil)}, "", errNoRight},
		"there is no watch yet": {nil, "", errUnread},
	} {
		w, _ := requiring(test.shown)
		is := w.Required("shop", Requires{Resources: []schema.GroupVersionResource{
			{Group: "apps", Version: "v1", Resource: "deployments"},
		}})
		if is.Unhealthy != test.unhealthy || !errors.Is(is.Err, test.err) {
			t.Errorf("%s: %+v", name, is)
		}
	}
	w, _ := requiring(nil)
	if is := w.Required("shop", Requires{Reader: true}); is.Unhealthy != "" || !errors.Is(is.Err, errUnread) {
		t.Errorf("no registrations were seen yet: %+v", is)
	}
}

// A tenant may label any number of objects.
func TestRequired_KeepsABoundedNumberOfObjects(t *testing.T) {
	w, _ := requiring(nil)
	o, queue := objectsOf(nil, nil), workqueue.NewTypedDelayingQueue[types.NamespacedName]()
	defer queue.ShutDown()
	var failed []error
	for i := range maxRequired + 1 {
		obj := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint(i)}}
		w.required.noteSeen(obj, o, queue, func(err error) { failed = append(failed, err) })
	}
	w.required.noteSeen(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "in no namespace"}}, o, queue, nil)
	if len(o.of) != maxRequired || queue.Len() != maxRequired || !slices.Equal(failed, []error{errTooMany}) {
		t.Errorf("%d are kept, %d are read, %v", len(o.of), queue.Len(), failed)
	}
}

// A status that is written every second, as for a heartbeat, causes no decision.
func TestRequired_EnqueuesDecisionsOnChangesOnly(t *testing.T) {
	w, c := requiring(nil)
	name, o := types.NamespacedName{Namespace: "shop", Name: "a"}, objectsOf(nil, nil)
	set := func(is objectHealth) func() { return func() { o.of[name] = is } }
	w.required.change(o, "shop", set(objectHealth{}))
	w.required.change(o, "shop", set(objectHealth{unhealthy: "it is sick"}))
	w.required.change(o, "shop", set(objectHealth{unhealthy: "it is sick"}))
	w.required.change(o, "", func() { o.err = errNoRight })
	w.required.change(o, "", func() { o.err = errNoRight })
	w.required.noteGone(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"}}, o)
	if want := []string{"shop", "", "shop"}; !slices.Equal(c.of, want) {
		t.Errorf("decisions on %q, want %q", c.of, want)
	}
}

// getter answers a list with one page of several.
type getter struct{ metadata.Getter }

func (getter) List(_ context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	list := &metav1.PartialObjectMetadataList{}
	if o.Limit == maxRequired && o.LabelSelector == "leasecast.dev/required=true" {
		list.Continue = "more"
	}
	return list, nil
}

// An informer would keep all pages of a list.
func TestRequired_ListsOnePage(t *testing.T) {
	if _, err := (bounded{getter{}}).List(metav1.ListOptions{Limit: 500}); !errors.Is(err, errTooMany) {
		t.Errorf("got %v", err)
	}
}

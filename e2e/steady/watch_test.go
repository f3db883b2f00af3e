package steady

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/process"
)

var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// change is an event of a watch.
type change struct {
	at       time.Time
	server   string
	verb     watch.EventType
	resource schema.GroupResource
	object   metav1.Object
}

func (c change) String() string {
	return fmt.Sprintf("%s %s: %s %s %s, last written by %s",
		c.at.Format("15:04:05.000"), c.server, c.verb, c.resource, c.name(), writers(c.object))
}

func (c change) name() string {
	if ns := c.object.GetNamespace(); ns != "" {
		return ns + "/" + c.object.GetName()
	}
	return c.object.GetName()
}

// writers names those who wrote in the second of the last write, as far as the object
// itself tells.
func writers(o metav1.Object) string {
	var last *metav1.Time
	var names []string
	for _, f := range o.GetManagedFields() {
		if last == nil || last.Before(f.Time) {
			last, names = f.Time, nil
		}
		if last.Equal(f.Time) {
			names = append(names, strings.TrimSpace(f.Manager+" "+f.Subresource))
		}
	}
	if len(names) == 0 {
		return "somebody who left no trace"
	}
	return strings.Join(names, " or ")
}

// changes collects what watches see from their start to the end of the test.
type changes struct {
	mu     sync.Mutex
	seen   []change
	broken []error
}

// after returns what was seen after the first n changes.
func (c *changes) after(n int) []change {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.seen[n:])
}

func (c *changes) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.seen)
}

// last is when the last change was seen, if there was one.
func (c *changes) last() (at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.seen); n > 0 {
		at = c.seen[n-1].at
	}
	return at
}

func (c *changes) add(seen change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, seen)
}

// intact fails the test if a watch has ended: then silence means nothing.
func (c *changes) intact(t harness.TB) {
	c.mu.Lock()
	defer c.mu.Unlock()
	harness.Must(t, errors.Join(c.broken...))
}

// follow collects the events of a watch until the test is over.
func (c *changes) follow(t harness.TB, server string, resource schema.GroupResource, w watch.Interface) {
	done := make(chan struct{})
	t.Cleanup(func() {
		w.Stop()
		<-done
	})
	go func() {
		defer close(done)
		err := c.read(server, resource, w)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.broken = append(c.broken, fmt.Errorf("%s: the watch of %s has ended: %w", server, resource, err))
	}()
}

func (c *changes) read(server string, resource schema.GroupResource, w watch.Interface) error {
	for event := range w.ResultChan() {
		object, ok := event.Object.(metav1.Object)
		if event.Type == watch.Error || !ok {
			return apierrors.FromObject(event.Object)
		}
		c.add(change{time.Now(), server, event.Type, resource, object})
	}
	return errors.New("closed by the server")
}

// quiet waits until nothing has been seen for a while.
func (c *changes) quiet(t harness.TB, since time.Time, span, within time.Duration) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, within, true,
		func(context.Context) (bool, error) {
			last := c.last()
			if last.Before(since) {
				last = since
			}
			return time.Since(last) >= span, nil
		})
	c.intact(t)
	if err != nil {
		t.Fatalf("not quiet for %v within %v; the last changes:\n%s", span, within, lines(c.after(max(0, c.count()-20))))
	}
}

// silent fails the test for everything that is seen in a span of time that begins now, and
// tells what the hub's events say about it.
func (w *world) silent(c *changes, span time.Duration) {
	w.T.Helper()
	begin := c.count()
	w.Must(process.Pass(w.T.Context(), span))
	c.intact(w.T)
	if seen := c.after(begin); len(seen) > 0 {
		w.T.Errorf("%d changes in %v of what should be silence:\n%s%s", len(seen), span, lines(seen), w.told())
	}
}

// told are the notes of the hub's events, oldest first.
func (w *world) told() string {
	list := &eventsv1.EventList{}
	if err := w.Hub.List(w.T.Context(), list, client.InNamespace(harness.FleetNamespace)); err != nil {
		return err.Error()
	}
	slices.SortFunc(list.Items, func(a, b eventsv1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
	var b strings.Builder
	for _, e := range list.Items {
		fmt.Fprintf(&b, "\t%s %s %s: %s: %s\n", e.EventTime.Format("15:04:05.000"), e.Regarding.Kind, e.Regarding.Name,
			e.Reason, e.Note)
	}
	return b.String()
}

func lines(cs []change) string {
	var b strings.Builder
	for _, c := range cs {
		fmt.Fprintf(&b, "\t%s\n", c)
	}
	return b.String()
}

// watchAllBut watches, on all servers, everything that can be watched but one resource,
// and returns what that is.
func watchAllBut(t harness.TB, f *fleet.Fleet, not schema.GroupResource) (*changes, map[string][]schema.GroupResource) {
	c := &changes{}
	watched := map[string][]schema.GroupResource{}
	var group errgroup.Group // at once: a server takes a second to warm to a custom resource
	for _, s := range f.Servers() {
		for _, resource := range watchable(t, s) {
			if resource.GroupResource() != not {
				watched[s.Name()] = append(watched[s.Name()], resource.GroupResource())
				group.Go(func() error { return c.watchMetadata(t, s, resource) })
			}
		}
	}
	harness.Must(t, group.Wait())
	return c, watched
}

// watchable lists what a server lets one list and watch, each in its preferred version.
func watchable(t harness.TB, s *fleet.Server) []schema.GroupVersionResource {
	t.Helper()
	client := harness.Get(discovery.NewDiscoveryClientForConfig(s.AdminConfig()))(t)
	lists, err := discovery.ServerPreferredResources(client)
	if err != nil {
		t.Fatalf("%s: discover what it serves: %v", s.Name(), err)
	}
	lists = discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "watch"}}, lists)
	set := harness.Get(discovery.GroupVersionResources(lists))(t)
	var resources []schema.GroupVersionResource
	for r := range set {
		resources = append(resources, r)
	}
	return resources
}

// watchMetadata follows the metadata of all objects of a resource, from now on.
func (c *changes) watchMetadata(t harness.TB, s *fleet.Server, resource schema.GroupVersionResource) error {
	config := s.AdminConfig()
	config.WarningHandler = rest.NoWarnings{} // of deprecated types
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), requestTimeout)
	defer cancel()
	list, err := client.Resource(resource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("%s: list %s: %w", s.Name(), resource, err)
	}
	w, err := client.Resource(resource).Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return fmt.Errorf("%s: watch %s: %w", s.Name(), resource, err)
	}
	c.follow(t, s.Name(), resource.GroupResource(), w)
	return nil
}

// watchLeases follows all Leases of all servers, from now on.
func watchLeases(t harness.TB, f *fleet.Fleet) *changes {
	c := &changes{}
	for _, s := range f.Servers() {
		c.watchLeases(t, s)
	}
	return c
}

func (c *changes) watchLeases(t harness.TB, s *fleet.Server) {
	t.Helper()
	clientset := harness.Get(kubernetes.NewForConfig(s.AdminConfig()))(t)
	client := clientset.CoordinationV1().Leases(metav1.NamespaceAll)
	ctx, cancel := context.WithTimeout(t.Context(), requestTimeout)
	defer cancel()
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatalf("%s: list Leases: %v", s.Name(), err)
	}
	w, err := client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatalf("%s: watch Leases: %v", s.Name(), err)
	}
	c.follow(t, s.Name(), leases, w)
}

package steady

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
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
func (c *changes) intact(t testing.TB) {
	c.mu.Lock()
	defer c.mu.Unlock()
	harness.Must(t, errors.Join(c.broken...))
}

// follow collects the events of a watch until the test is over.
func (c *changes) follow(t testing.TB, server string, resource schema.GroupResource, w watch.Interface) {
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
func (c *changes) quiet(t testing.TB, since time.Time, span, within time.Duration) {
	t.Helper()
	harness.Eventually(t, within, fmt.Sprintf("quiet for %v", span), func(context.Context) error {
		c.intact(t)
		if time.Since(c.last()) < span || time.Since(since) < span {
			return fmt.Errorf("the last changes:\n%s", lines(c.after(max(0, c.count()-20))))
		}
		return nil
	})
}

// silent fails the test for everything that is seen in a span of time that begins now.
func (w *world) silent(c *changes, span time.Duration) {
	w.T.Helper()
	begin := c.count()
	w.Must(process.Pass(w.T.Context(), span))
	c.intact(w.T)
	if seen := c.after(begin); len(seen) > 0 {
		w.T.Errorf("%d changes in %v of what should be silence:\n%s", len(seen), span, lines(seen))
	}
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
func (w *world) watchAllBut(not schema.GroupResource) (*changes, map[string][]schema.GroupResource) {
	c := &changes{}
	watched := map[string][]schema.GroupResource{}
	var group errgroup.Group // at once: a server takes a second to warm to a custom resource
	for _, s := range w.Servers.Servers() {
		for resource, kind := range watchable(w.T, s) {
			if resource != not {
				watched[s.Name()] = append(watched[s.Name()], resource)
				list := &metav1.PartialObjectMetadataList{}
				list.SetGroupVersionKind(kind)
				group.Go(func() error { return must.Try(func() { w.watch(c, s, resource, list) }) })
			}
		}
	}
	w.Must(group.Wait())
	return c, watched
}

// watchable lists what a server lets one list and watch, each with the kind of its list in its preferred version.
func watchable(t testing.TB, s *fleet.Server) map[schema.GroupResource]schema.GroupVersionKind {
	client := harness.Get(discovery.NewDiscoveryClientForConfig(s.AdminConfig()))(t)
	lists := harness.Get(discovery.ServerPreferredResources(client))(t)
	all := map[schema.GroupResource]schema.GroupVersionKind{}
	for _, l := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "watch"}}, lists) {
		for _, r := range l.APIResources {
			kind := schema.FromAPIVersionAndKind(l.GroupVersion, r.Kind+"List")
			all[schema.GroupResource{Group: kind.Group, Resource: r.Name}] = kind
		}
	}
	return all
}

// watch follows the objects of a resource from now on. It fails by package must.
func (w *world) watch(c *changes, s *fleet.Server, resource schema.GroupResource, list client.ObjectList) {
	// The world's clients have a timeout.
	watcher := must.Get(client.NewWithWatch(s.AdminConfig(), client.Options{Scheme: w.Hub.Scheme()}))
	ctx, cancel := context.WithTimeout(w.T.Context(), requestTimeout)
	defer cancel()
	must.Do(watcher.List(ctx, list), "%s: list %s", s.Name(), resource)
	from := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}}
	watch, err := watcher.Watch(w.T.Context(), list, from)
	must.Do(err, "%s: watch %s", s.Name(), resource)
	c.follow(w.T, s.Name(), resource, watch)
}

// watchLeases follows all Leases of all servers, from now on.
func (w *world) watchLeases() *changes {
	c := &changes{}
	w.Must(must.Try(func() {
		for _, s := range w.Servers.Servers() {
			w.watch(c, s, leases, &coordinationv1.LeaseList{})
		}
	}))
	return c
}

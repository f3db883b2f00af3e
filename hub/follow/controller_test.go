package follow

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/labelled"
)

var shop = types.NamespacedName{Namespace: "fleet", Name: "shop"}

// members are the members of a fleet, set by hand.
type members map[fleet.Key]fleet.Member

func (m members) Member(key fleet.Key) (fleet.Member, bool) { is, ok := m[key]; return is, ok }

func (m members) Members(string) (all []fleet.Member) {
	for _, is := range m {
		all = append(all, is)
	}
	return all
}

// hub is a controller with these sets in namespace shop, each with a source of a role. It has east, which leads.
func hub(t *testing.T, roles ...v1alpha1.ClusterRole) (*Controller, *clocktest.Hand, members) {
	s := runtime.NewScheme()
	musttest.Do(t, v1alpha1.AddToScheme(s))
	var objects []client.Object
	for _, role := range roles {
		o := &v1alpha1.LeaderResourceSet{}
		o.Namespace, o.Name = "fleet", strings.ToLower(string(role))
		o.Spec.Namespace, o.Spec.ConfirmWithinSeconds = "shop", 60
		o.Spec.Resources = []v1alpha1.LeaderResource{{Kind: v1alpha1.SourceConfigMap, Name: "s", For: role}}
		objects = append(objects, o)
	}
	east := fleet.Key{Fleet: "fleet", Name: "east"}
	now, all := clocktest.NewHand(clocktest.Start), members{east: {Key: east, Connected: true}}
	c := New(Options{Clock: now, Fleet: all, Place: func(context.Context, types.NamespacedName) (Place, error) {
		return Place{Managed: true, Leader: "east", Epoch: 7, Clusters: map[string]bool{"east": true}}, nil
	}})
	c.client = fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.LeaderResourceSet{}).Build()
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[mcreconcile.Request]())
	t.Cleanup(q.ShutDown)
	c.queue.Store(&q)
	return c, now, all
}

// asked takes the requests that wait, as "set in cluster" with commas between.
func (c *Controller) asked() string {
	var all []string
	for q := *c.queue.Load(); q.Len() > 0; {
		r, _ := q.Get()
		q.Done(r)
		all = append(all, r.Name+" in "+strings.TrimPrefix(r.ClusterName.String(), "fleet/"))
	}
	return strings.Join(all, ",")
}

func TestAPlannedChangeWaitsForSetsWithTwoForms(t *testing.T) {
	for name, test := range map[string]struct {
		roles []v1alpha1.ClusterRole
		waits bool
	}{
		"no set":               {nil, false},
		"one form":             {[]v1alpha1.ClusterRole{v1alpha1.RoleAll}, false},
		"a form of the leader": {[]v1alpha1.ClusterRole{v1alpha1.RoleAll, v1alpha1.RoleLeader}, true},
	} {
		c, now, _ := hub(t, test.roles...)
		sets := c.client
		c.client = interceptor.NewClient(sets.(client.WithWatch), interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return errors.New("not synced")
			},
		})
		if c.GiveWay(shop, "east", 7) {
			t.Errorf("%s: it goes on before the sets are known", name)
		}
		c.client = sets
		if got := !c.GiveWay(shop, "east", 7); got != test.waits {
			t.Errorf("%s: it waits: %v", name, got)
		}
		if c.GiveWay(types.NamespacedName{Namespace: "fleet", Name: "bank"}, "east", 7) == false {
			t.Errorf("%s: another namespace waits", name)
		}
		if !test.waits {
			continue
		}
		if asked := c.asked(); asked != "leader in east" {
			t.Errorf("%s: asked are %q", name, asked)
		}
		set := types.NamespacedName{Namespace: "fleet", Name: "leader"}
		in := c.sets[set].in["east"]
		c.give(in, c.giving[shop], "Pods are left")
		if c.GiveWay(shop, "east", 7) {
			t.Errorf("%s: it goes on while Pods are left", name)
		}
		c.give(in, c.giving[shop], "")
		if !c.GiveWay(shop, "east", 7) || c.sets[set].late != "" {
			t.Errorf("%s: it waits although the cluster has given way", name)
		}
		if c.GiveWay(shop, "east", 8) {
			t.Errorf("%s: what was given in one term counts in the next one", name)
		}
		before := c.giving[shop]
		c.give(in, before, "")
		c.Stay(shop)
		c.give(in, before, "") // by a pass that had begun before
		if c.GiveWay(shop, "east", 8) {
			t.Errorf("%s: it has given way although the leader has stayed since", name)
		}
		c.give(in, c.giving[shop], "Pods are left")
		now.Advance(59 * time.Second)
		if c.GiveWay(shop, "east", 8) || c.sets[set].late != "" {
			t.Errorf("%s: it does not wait for a minute", name)
		}
		now.Advance(time.Second)
		if !c.GiveWay(shop, "east", 8) || !strings.Contains(c.sets[set].late, "Pods are left") {
			t.Errorf("%s: it waits longer than a minute, or does not say for what: %q", name, c.sets[set].late)
		}
		c.GiveWay(shop, "east", 9)
		if c.give(in, c.giving[shop], ""); !c.GiveWay(shop, "east", 9) || c.sets[set].late != "" {
			t.Errorf("%s: what was late before is said of the next change: %q", name, c.sets[set].late)
		}
	}
}

// A record may be old, or another hub's, until this replica has decided on it.
func TestNothingFollowsARecordBeforeADecision(t *testing.T) {
	c, _, _ := hub(t, v1alpha1.RoleAll)
	is := func() bool {
		p, err := c.where(t.Context(), shop)
		return err == nil && p.Managed
	}
	if p, _ := c.where(t.Context(), shop); is() || !p.undecided {
		t.Error("before a decision")
	}
	c.Decided(shop, true)
	if asked := c.asked(); !is() || asked != "all in ,all in east" {
		t.Errorf("after a decision: asked are %q", asked)
	}
	c.Decided(shop, true)
	if asked := c.asked(); asked != "" {
		t.Errorf("after one more decision: asked are %q", asked)
	}
	c.Decided(shop, false)
	if p, _ := c.where(t.Context(), shop); is() || p.undecided {
		t.Error("when another hub decides")
	}
	c.Decided(shop, true)
	c.Forget(shop)
	if p, _ := c.where(t.Context(), shop); is() || !p.undecided {
		t.Error("when the record was gone, and came back")
	}
}

func TestAMemberIsLookedAtWhenItHasChanged(t *testing.T) {
	c, _, all := hub(t, v1alpha1.RoleAll)
	east := fleet.Key{Fleet: "fleet", Name: "east"}
	for i, change := range []struct {
		make  func(*fleet.Member)
		looks bool
	}{
		{func(*fleet.Member) {}, true},
		{func(*fleet.Member) {}, false},
		{func(m *fleet.Member) { m.Paused = true }, true},
		{func(m *fleet.Member) { m.Priority++ }, false},
		{func(m *fleet.Member) { m.Labels = map[string]string{"tier": "gold"} }, true},
		{func(m *fleet.Member) { m.Connected = false }, true},
	} {
		m := all[east]
		change.make(&m)
		all[east] = m
		c.MemberChanged(east)
		if asked := c.asked(); (asked == "all in east") != change.looks {
			t.Errorf("change %d: asked are %q", i, asked)
		}
	}
}

// What an API server has against one object keeps no other one from its place. What it says of a Secret may quote that.
func TestWhatAnAnswerIsAbout(t *testing.T) {
	const webhook = `admission webhook "a.example.org" denied the request: `
	const policy = `configmaps "a" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: `
	type answer struct {
		code int
		by   string
	}
	for said, want := range map[answer]reason.Reason{
		{http.StatusBadRequest, ""}: reason.Rejected, {http.StatusForbidden, ""}: reason.Rejected,
		{http.StatusUnprocessableEntity, ""}: reason.Rejected, {http.StatusInternalServerError, ""}: reason.Rejected,
		{http.StatusNotFound, ""}:     reason.NamespaceMissing,
		{http.StatusUnauthorized, ""}: "", {http.StatusTooManyRequests, ""}: "", {http.StatusServiceUnavailable, ""}: "",
		// Whoever denies a request chooses the code.
		{http.StatusUnauthorized, policy}: reason.Rejected, {http.StatusTooManyRequests, webhook}: reason.Rejected,
		{http.StatusNotFound, webhook}: reason.Rejected, {http.StatusConflict, webhook}: reason.Rejected,
		{http.StatusServiceUnavailable, webhook}: reason.Rejected,
	} {
		for _, secret := range []bool{true, false} {
			var is v1alpha1.ResourceProblem
			status := metav1.Status{Code: int32(said.code), Message: said.by + `invalid value "hunter2"`}
			wrong, err := (&pass{context: t.Context()}).explain(id{name: "a"}, secret, &apierrors.StatusError{ErrStatus: status})
			if is = ptr.Deref(wrong, is); is.Reason != want || (err == nil) != (want != "") {
				t.Errorf("%+v: %+v, %v; want %s", said, is, err, want)
			}
			if want == reason.Rejected && strings.Contains(is.Message, "hunter2") == secret {
				t.Errorf("%+v, secret %t: it says %q", said, secret, is.Message)
			}
		}
	}
}

// One object whose webhook is slow keeps no other one from its place. A member that is silent ends the pass.
func TestTwoObjectsOfAPassMayGetNoAnswer(t *testing.T) {
	p, late := &pass{context: t.Context()}, apierrors.NewTimeoutError("webhook", 0)
	for n, want := range []bool{true, true, false} {
		wrong, err := p.explain(id{name: "a"}, false, late)
		if is := wrong != nil && err == nil; is != want {
			t.Errorf("timeout %d: a problem of the object: %v, want %v", n+1, is, want)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := (&pass{context: ended}).explain(id{name: "a"}, false, context.DeadlineExceeded); err == nil {
		t.Error("a pass that is over goes on")
	}
}

// A tenant of a member may put the label of sets on thousands of objects. That is no fault of the connection.
func TestWhyAKindIsNotListed(t *testing.T) {
	for want, err := range map[reason.Reason]error{
		"": nil, reason.NoSuchKind: errNoKind, reason.Applying: errNotListed, reason.Unreachable: errors.New("no answer"),
		reason.TooManyObjects: fmt.Errorf("%w: more than %d", labelled.ErrTooMany, maxMarked),
		reason.NotAllowed:     apierrors.NewForbidden(schema.GroupResource{}, "", nil),
	} {
		if why, message := (&pass{}).unlisted(ofConfigMaps, err); why != want || (message == "") != (want == "") {
			t.Errorf("%v: %s %q, want %s", err, why, message, want)
		}
	}
}

// Others copy labels: Kubernetes does, from Services to EndpointSlices. A copy is not the set's, so it is not deleted.
func TestACopiedLabelMarksNothing(t *testing.T) {
	config := ofConfigMaps.GroupKind()
	value := label(identity("fleet", "set"), id{config, "shop", "a"})
	for name, test := range map[string]struct {
		kind            schema.GroupKind
		namespace, name string
		want            bool
	}{
		"the object":        {config, "shop", "a", true},
		"another name":      {config, "shop", "b", false},
		"another namespace": {config, "bank", "a", false},
		"another kind":      {schema.GroupKind{Kind: "Secret"}, "shop", "a", false},
	} {
		o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: test.namespace, Name: test.name, Labels: map[string]string{v1alpha1.SetLabel: value},
		}}
		_, is, ok := markedOf(test.kind, o)
		if ok != test.want || is.set != identity("fleet", "set") {
			t.Errorf("%s: %v of %q", name, ok, is.set)
		}
	}
}

// The members of a hub that stops leave after its controllers have stopped. None may wait for the other.
func TestWatchesEndBeforeTheMembersLeave(t *testing.T) {
	c, _, _ := hub(t)
	musttest.Do(t, c.Engage(t.Context(), "fleet/east", nil))
	east := c.members[fleet.Key{Fleet: "fleet", Name: "east"}]
	east.inventory.tenants = func() *rest.Config { return &rest.Config{Host: "http://127.0.0.1:1"} }
	if _, err := east.inventory.start(east.ended, ofConfigMaps); !errors.Is(err, errNotListed) {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	ended := make(chan error)
	go func() { ended <- c.Start(ctx) }()
	late := time.NewTimer(10 * time.Second)
	defer late.Stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-late.C:
		t.Error("the controller waits for a watch, which waits for the end of the hub")
	}
}

// Caches that have not started by the time that a hub stops never do.
func TestAHubThatStopsWaitsForNoList(t *testing.T) {
	for name, test := range map[string]struct {
		elected bool
		within  time.Duration
		stops   bool
	}{
		"a standby lists nothing":     {false, 0, false},
		"an elected replica stops":    {true, 0, true},
		"a list takes a bounded time": {true, listTimeout, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _, _ := hub(t, v1alpha1.RoleAll)
				if !test.elected {
					c.queue.Store(nil)
				}
				c.client = interceptor.NewClient(c.client.(client.WithWatch), interceptor.Funcs{
					List: func(ctx context.Context, _ client.WithWatch, _ client.ObjectList, _ ...client.ListOption) error {
						<-ctx.Done()
						return ctx.Err()
					},
				})
				begun := time.Now()
				var group sync.WaitGroup
				group.Go(func() { c.MemberChanged(fleet.Key{Fleet: "fleet", Name: "east"}) })
				synctest.Wait()
				if test.stops {
					c.stop()
				}
				group.Wait()
				if took := time.Since(begun); took != test.within {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

func TestWhatChangesASpec(t *testing.T) {
	old := &v1alpha1.LeaderResourceSet{ObjectMeta: metav1.ObjectMeta{UID: "a", Generation: 1}}
	for name, test := range map[string]struct {
		is   metav1.ObjectMeta
		want bool
	}{
		"the spec is edited":                         {metav1.ObjectMeta{UID: "a", Generation: 2}, true},
		"it was created again while nobody watched":  {metav1.ObjectMeta{UID: "b", Generation: 1}, true},
		"its status or its annotations have changed": {metav1.ObjectMeta{UID: "a", Generation: 1}, false},
	} {
		e := event.TypedUpdateEvent[*v1alpha1.LeaderResourceSet]{
			ObjectOld: old, ObjectNew: &v1alpha1.LeaderResourceSet{ObjectMeta: test.is},
		}
		if got := specChanged[*v1alpha1.LeaderResourceSet]().Update(e); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestSourcesAreWatchedUntilTheLastSetOfAFleetIsGone(t *testing.T) {
	c, _, _ := hub(t, v1alpha1.RoleAll, v1alpha1.RoleLeader)
	ended := map[string]bool{}
	for _, name := range []string{"fleet", "fleet2"} {
		c.sources.watching[sourcesOf{name, v1alpha1.SourceConfigMap}] = func() { ended[name] = true }
	}
	for _, role := range []v1alpha1.ClusterRole{v1alpha1.RoleAll, v1alpha1.RoleLeader} {
		set := &v1alpha1.LeaderResourceSet{}
		set.Namespace, set.Name = "fleet", strings.ToLower(string(role))
		musttest.Do(t, c.client.Delete(t.Context(), set))
		c.forget(client.ObjectKeyFromObject(set))
		if last := role == v1alpha1.RoleLeader; ended["fleet"] != last || ended["fleet2"] {
			t.Errorf("after %s is gone, these have ended: %v", set.Name, ended)
		}
	}
}

// The first set of a fleet may come just when the last one goes.
func TestSourcesOfASetThatComesWhileTheLastOneGoesAreWatched(t *testing.T) {
	c, _, _ := hub(t)
	ended, first := false, true
	c.sources.watching[sourcesOf{"fleet", v1alpha1.SourceConfigMap}] = func() { ended = true }
	comes := &v1alpha1.LeaderResourceSet{}
	comes.Namespace, comes.Name = "fleet", "comes"
	comes.Spec.Resources = []v1alpha1.LeaderResource{{Kind: v1alpha1.SourceConfigMap, Name: "s"}}
	c.client = interceptor.NewClient(c.client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, api client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			err := api.List(ctx, l, opts...)
			if first { // it is not in this list
				first = false
				err = errors.Join(err, api.Create(ctx, comes))
				c.sources.watch(comes)
			}
			return err
		},
	})
	c.forget(types.NamespacedName{Namespace: "fleet", Name: "goes"})
	if ended {
		t.Error("the watch of its sources has ended")
	}
}

// A cluster that answers gets its objects, also where the hub cannot use a newer kubeconfig, or repair its own role.
func TestSetsAreWorkedOnInAClusterThatAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		unreachable bool
		asks        string // the requests after the probe's outcome has changed
		want        time.Duration
	}{
		"a newer kubeconfig is not used": {false, "", busyPause},
		"the probe is not answered":      {true, "all in east", silentPause},
	} {
		c, _, all := hub(t, v1alpha1.RoleAll)
		c.Decided(shop, true)
		east := fleet.Key{Fleet: "fleet", Name: "east"}
		c.members[east] = &member{} // others are worked on there
		c.MemberChanged(east)
		c.asked()
		m := all[east]
		m.Problem.Reason, m.Unreachable = reason.Unreachable, test.unreachable
		all[east] = m
		c.MemberChanged(east)
		if asked := c.asked(); asked != test.asks {
			t.Errorf("%s: asked are %q", name, asked)
		}
		set := &v1alpha1.LeaderResourceSet{}
		musttest.Do(t, c.client.Get(t.Context(), types.NamespacedName{Namespace: "fleet", Name: "all"}, set))
		if got, err := c.reconcileIn(t.Context(), set, east); err != nil || got.RequeueAfter != test.want {
			t.Errorf("%s: again in %v, %v; want %v", name, got.RequeueAfter, err, test.want)
		}
	}
}

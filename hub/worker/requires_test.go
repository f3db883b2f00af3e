package worker

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/labelled"
)

var ofDeployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}

// requiring is a Worker that watches Deployments, of which a list has shown these, as namespace/name.
func requiring(t *testing.T, names ...string) (*Worker, *requiredObjects) {
	t.Helper()
	w := New(Options{Hub: &env{}, Member: fleet.Member{Key: eastKey}})
	o := newRequiredObjects(ofDeployments, func() {})
	t.Cleanup(o.unread.ShutDown)
	w.required.of[ofDeployments] = o
	musttest.Do(t, w.required.noteList(o, listed(names...)))
	return w, o
}

// listed are the metadata of objects, named as namespace/name=version.
func listed(names ...string) (items []metav1.PartialObjectMetadata) {
	for _, name := range names {
		name, version, _ := strings.Cut(name, "=")
		namespace, name, _ := strings.Cut(name, "/")
		items = append(items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, ResourceVersion: version,
		}})
	}
	return items
}

func (w *Worker) ofShop(of schema.GroupVersionResource) Required {
	return w.Required("shop", Requires{Resources: []schema.GroupVersionResource{of}})
}

// A decision is enqueued once, and not with each request that fails.
func TestRequired_SaysWhyNothingIsKnown(t *testing.T) {
	type row struct {
		answer *metav1.Status
		stored int    // each in a namespace of its own
		comes  string // later, one in this namespace
		want   error
	}
	const most, nowhere = maxRequired, "-"
	rows(t, map[string]row{
		"no right":                      {answer: forbidden, want: errNoRight},
		"no such kind":                  {answer: notFound, want: errNoKind},
		"no watch":                      {answer: failure(405, metav1.StatusReasonMethodNotAllowed), want: errNoKind},
		"anything else":                 {answer: internal, want: errFailing},
		"as many as are kept":           {stored: most},
		"one more is there":             {stored: most + 1, want: errTooMany},
		"one more comes":                {stored: most, comes: "bank", want: errTooMany},
		"its objects have no namespace": {stored: -1, want: errNoScope},
		"one without a namespace comes": {comes: nowhere, want: errNoScope},
	}, func(t *testing.T, row row) {
		r := newEnv(t)
		r.required = []schema.GroupVersionResource{ofDeployments}
		r.answer = func(*http.Request) *metav1.Status { return row.answer }
		for i := range row.stored {
			r.requires(ofDeployments, fmt.Sprint("n", i), "a", "True")
		}
		if row.stored < 0 {
			r.requires(ofDeployments, "", "a", "True")
		}
		defer r.runs(r.Worker.required.run)()
		if row.comes != "" {
			r.east.sends("ADDED", r.requires(ofDeployments, strings.Trim(row.comes, nowhere), "b", "True"))
		}
		pass(keepEvery)
		for _, first := range []bool{true, false} {
			if is := r.ofShop(ofDeployments); !same(is.Err, row.want) || slices.Contains(r.enqueued(), "") != first {
				t.Errorf("%+v, want %v; or a decision is enqueued: %v", is, row.want, !first)
			}
			pass(2*labelled.Pause + keepEvery)
		}
		reads := slices.DeleteFunc(r.sent, func(s request) bool { return !strings.Contains(s.what, "/deployments/") })
		if n := 2*turn + int(time.Since(r.start)/readRequiredEvery); len(reads) > n {
			t.Errorf("%d objects are read, want at most %d", len(reads), n)
		}
	})
}

func TestRequired_SaysTheSameOfSeveral(t *testing.T) {
	w, o := requiring(t, "shop/a=1", "shop/b=1", "shop/c=1")
	o.of["shop"]["a"].err, o.of["shop"]["b"].unhealthy, o.of["shop"]["c"].unhealthy = errNoRight, "b is sick", "c is sick"
	for range 20 { // the same of several, or decisions would be enqueued again and again
		if is := w.ofShop(ofDeployments); is != (Required{"b is sick", ErrUnread}) {
			t.Fatalf("of several: %+v", is)
		}
	}
	w.required.left = true
	if is := w.ofShop(ofDeployments); !errors.Is(is.Err, ErrUnread) {
		t.Errorf("too many are required, and it is watched: %+v", is)
	}
	w = New(Options{Hub: &env{}, Member: fleet.Member{Key: eastKey}})
	if is := w.ofShop(ofDeployments); !errors.Is(is.Err, ErrUnread) {
		t.Errorf("it is not watched yet: %+v", is)
	}
	w.required.left = true
	if is := w.ofShop(ofDeployments); !errors.Is(is.Err, errKinds) {
		t.Errorf("it is not watched, because too many are: %+v", is)
	}
	if is := w.Required("shop", Requires{Reader: true}); is.Unhealthy != "" || !errors.Is(is.Err, ErrUnread) {
		t.Errorf("no registrations were seen yet: %+v", is)
	}
}

// A tenant may label any number of objects, and change them as often as an API server lets it.
func TestRequired_IsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, o := requiring(t)
		for i := range 2 * maxRequired {
			for _, how := range []watch.EventType{watch.Deleted, watch.Added, watch.Deleted} {
				musttest.Do(t, w.required.note(o, how, &listed(fmt.Sprintf("n%d/a=1", i))[0]))
			}
		}
		if o.n != 0 || len(o.of) != 0 || o.unread.Len() != 0 {
			t.Errorf("all are gone, but %d in %d namespaces are kept, and %d have their turn", o.n, len(o.of), o.unread.Len())
		}
		w, o = requiring(t)
		var err error
		for i := 0; err == nil; i++ {
			err = w.required.note(o, watch.Added, &listed(fmt.Sprintf("shop/%d=1", i))[0])
		}
		if o.n != maxRequired || !errors.Is(err, errTooMany) {
			t.Errorf("%d are kept, %v", o.n, err)
		}
		for range 100 {
			musttest.Do(t, w.required.note(o, watch.Modified, &listed("shop/7=2")[0]))
		}
		began := time.Now()
		if namespace, _ := o.unread.Get(); namespace != "shop" || time.Since(began) != namespacePause || o.unread.Len() != 0 {
			t.Errorf("after %v it is the turn of %q, and %d are left", time.Since(began), namespace, o.unread.Len())
		}
		w.required.fail(o, errTooMany)
		if o.n != 0 || len(o.of) != 0 {
			t.Error("they are kept although nothing is known of them")
		}
	})
}

// Each policy names the kinds that it requires. The member serves none of them.
func TestRequired_WatchesABoundedNumberOfKinds(t *testing.T) {
	kind := func(i int) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: fmt.Sprintf("kind%03d", i)}
	}
	for kinds, more := range map[int]error{maxKinds: ErrUnread, maxKinds + 1: errKinds} {
		synctest.Test(t, func(t *testing.T) {
			r := newEnv(t)
			r.answer = func(*http.Request) *metav1.Status { return notFound }
			for i := range kinds {
				r.required = append(r.required, kind(i), kind(0)) // two policies may require the same
			}
			defer r.runs(r.Worker.required.run)()
			pass(time.Second)
			for i, want := range map[int]error{maxKinds - 1: errNoKind, maxKinds: more} {
				is := r.Required("shop", Requires{Resources: []schema.GroupVersionResource{kind(i)}})
				if !errors.Is(is.Err, want) {
					t.Errorf("kind %d of %d: %v, want %v", i+1, kinds, is.Err, want)
				}
			}
		})
	}
}

// requires stores an object that policies require, with the condition Available, and returns its event. Its status
// cannot be read if available is empty.
func (r *env) requires(of schema.GroupVersionResource, ns, name, available string) *metav1.PartialObjectMetadata {
	o := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: ns, Name: name, Labels: map[string]string{v1alpha1.RequiredLabel: "true"},
	}}
	status := corev1.ConditionStatus(available)
	o.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: status}}
	group := "/apis/" + of.Group
	if of.Group == "" {
		group = "/api"
	}
	stored := r.east.store(group+"/v1", of.Resource, o)
	if available == "" {
		stored.Object["status"] = "odd"
	}
	o.ResourceVersion = stored.GetResourceVersion()
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
		ObjectMeta: o.ObjectMeta,
	}
}

// A worker lists and watches what policies require, reads what changes, and has the namespace decided again.
func TestRequired_FollowsTheObjectsInTheMember(t *testing.T) {
	rows(t, map[string]schema.GroupVersionResource{
		"of a group": ofDeployments, "of the core group": {Version: "v1", Resource: "deployments"},
	}, func(t *testing.T, of schema.GroupVersionResource) {
		kind := of.GroupResource().String()
		billIsSick, tillIsSick := kind+" bill is not Available", kind+" till is not Available"
		r := newEnv(t)
		r.required = []schema.GroupVersionResource{of}
		r.requires(of, "shop", "till", "False")
		var lost error
		r.east.fails = func(req *http.Request) (err error) {
			if strings.Contains(req.URL.Path, "/deployments/") && req.Header.Get("Accept") != transport.Plain {
				t.Errorf("one is read as %q", req.Header.Get("Accept"))
			}
			r.locked(func() { err = lost })
			return err
		}
		answers := func(status *metav1.Status, err error) func(*env) {
			return func(r *env) {
				lost = err
				r.answer = func(*http.Request) *metav1.Status { return status }
			}
		}
		requires := func(resources ...schema.GroupVersionResource) func(*env) {
			return func(r *env) { r.required, r.unread = resources, nil }
		}
		defer r.runs(r.Worker.required.run)()
		for _, step := range []struct {
			when      string
			change    func(*env)
			event     string // of the object that has changed, if any
			name      string
			available string
			want      Required
			enqueued  []string
		}{
			{"the list shows one that is sick", nil, "", "", "", Required{Unhealthy: tillIsSick}, []string{"", "shop"}},
			{"another one is sick", nil, "ADDED", "bill", "False", Required{Unhealthy: billIsSick}, []string{"shop"}},
			{"it becomes healthy", nil, "MODIFIED", "bill", "True", Required{Unhealthy: tillIsSick}, []string{"shop"}},
			{"the first one does, the member is silent", answers(internal, nil), "MODIFIED", "till", "True",
				Required{Unhealthy: tillIsSick}, nil},
			{"the member answers again", answers(nil, nil), "", "", "", Required{}, []string{"shop"}},
			{"it may not be read", answers(forbidden, nil), "MODIFIED", "till", "True",
				Required{Err: errNoRight}, []string{"shop"}},
			{"it is gone, which no event shows yet", answers(notFound, nil), "MODIFIED", "till", "True",
				Required{}, []string{"shop"}},
			{"its status cannot be read", answers(nil, nil), "MODIFIED", "till", "",
				Required{Err: errNoStatus}, []string{"shop"}},
			{"it is too large", answers(nil, transport.ErrTooLarge), "MODIFIED", "till", "True",
				Required{Err: errTooLarge}, []string{"shop"}},
			{"the other one becomes sick", answers(nil, nil), "MODIFIED", "bill", "False",
				Required{billIsSick, errTooLarge}, []string{"shop"}},
			{"the first one is deleted", nil, "DELETED", "till", "True",
				Required{Unhealthy: billIsSick}, []string{"shop"}},
			{"the other one changes, its health does not", nil, "MODIFIED", "bill", "False",
				Required{Unhealthy: billIsSick}, nil},
			{"the watch ends", func(r *env) { r.east.loses("/till") }, "END", "", "", Required{Unhealthy: billIsSick}, nil},
			{"another one begins", nil, "", "", "", Required{Unhealthy: billIsSick}, []string{""}},
			{"the watch is lost, and it may not be listed", answers(unavailable, nil), "ERROR", "", "",
				Required{Err: errFailing}, []string{""}},
			{"another list shows what was read", answers(nil, nil), "", "", "",
				Required{Unhealthy: billIsSick}, []string{""}},
			{"the policies cannot be read", func(r *env) { r.required, r.unread = nil, errRefused }, "", "", "",
				Required{Unhealthy: billIsSick}, nil},
			{"no policy requires the kind", requires(), "", "", "", Required{Err: ErrUnread}, nil},
			{"its watch is over", nil, "ERROR", "", "", Required{Err: ErrUnread}, nil},
			{"one does again, it may not be listed", func(r *env) {
				answers(forbidden, nil)(r)
				requires(of, of)(r)
			}, "", "", "", Required{Err: errNoRight}, []string{""}},
			{"it may be listed", answers(nil, nil), "", "", "", Required{Unhealthy: billIsSick}, []string{"", "shop"}},
		} {
			if step.change != nil {
				r.will(step.change)
			}
			lasts := labelled.Pause + 2*namespacePause
			switch step.event {
			case "":
			case "ERROR":
				r.east.sends(step.event, failure(http.StatusGone, metav1.StatusReasonExpired))
			case "END":
				r.east.ends()
				lasts = namespacePause
			default:
				r.east.sends(step.event, r.requires(of, "shop", step.name, step.available))
			}
			pass(lasts)
			if is := r.ofShop(of); is.Unhealthy != step.want.Unhealthy || !same(is.Err, step.want.Err) {
				t.Errorf("%s: %+v, want %+v", step.when, is, step.want)
			}
			if enqueued := r.enqueued(); !slices.Equal(slices.Compact(enqueued), step.enqueued) {
				t.Errorf("%s: enqueued %q, want %q", step.when, enqueued, step.enqueued)
			}
			r.will(func(r *env) {
				if len(r.sent) > 10 {
					t.Errorf("%s: %d requests", step.when, len(r.sent))
				}
				r.sent = nil
			})
		}
	})
}

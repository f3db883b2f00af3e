package follow

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/fleet/transport"
)

var ofConfigMaps = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

// What watches show is late. Only what is later than the version that was applied is drift.
func TestDrift(t *testing.T) {
	name := types.NamespacedName{Namespace: "shop", Name: "a"}
	mine := marked{set: "s", uid: "u", version: "10", generation: 2}
	with := func(change func(*marked)) *marked {
		m := mine
		m.version = "20"
		change(&m)
		return &m
	}
	bare, edited := marked{set: "s", uid: "u", version: "10"}, marked{set: "s", uid: "u", version: "20"}
	odd, odder := marked{set: "s", version: "a", generation: 2}, marked{set: "s", version: "b", generation: 3}
	for what, test := range map[string]struct {
		applied marked
		shown   *marked
		listed  string
		want    bool
	}{
		"shown as it was applied":                  {mine, &mine, "5", false},
		"not shown yet":                            {mine, nil, "5", false},
		"not in a later list":                      {mine, nil, "11", true},
		"its status has changed":                   {mine, with(func(*marked) {}), "5", false},
		"its spec was edited":                      {mine, with(func(m *marked) { m.generation = 3 }), "5", true},
		"it was deleted":                           {mine, with(func(m *marked) { m.gone = true }), "5", true},
		"it was deleted before it was applied":     {mine, &marked{set: "s", version: "9", gone: true}, "5", false},
		"it was created again by others":           {mine, with(func(m *marked) { m.uid = "v" }), "5", true},
		"another set has taken it":                 {mine, with(func(m *marked) { m.set = "other" }), "5", true},
		"a kind without generations was edited":    {bare, &edited, "5", true},
		"versions are no numbers: on the interval": {odd, &odder, "5", false},
	} {
		v := &inventory{of: map[schema.GroupVersionKind]*kindState{ofConfigMaps: {
			listed: test.listed, of: map[types.NamespacedName]marked{},
		}}}
		if test.shown != nil {
			v.of[ofConfigMaps].of[name] = *test.shown
		}
		if got := v.drifted(ofConfigMaps, name, test.applied); got != test.want {
			t.Errorf("%s: %v, want %v", what, got, test.want)
		}
	}
}

var ofDeployments = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}

// passIn returns a pass over the set "all", in a member that answers each patch by hand. It returns what was sent, in
// order, and the problems.
func passIn(t *testing.T, answer func(r *http.Request, body string) *apierrors.StatusError) (
	pass func(ctx context.Context, manifests string) (sent string, is reached), now *clocktest.Hand,
) {
	var sent []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		name := path.Base(r.URL.Path)
		sent = append(sent, name)
		w.Header().Set("Content-Type", "application/json")
		if err := answer(r, string(body)); err != nil {
			err.ErrStatus.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
			w.WriteHeader(int(err.ErrStatus.Code))
			_ = json.NewEncoder(w).Encode(err.ErrStatus)
			return
		}
		_, _ = fmt.Fprintf(w, `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":%q}}`, name)
	}))
	t.Cleanup(server.Close)
	c, now, _ := hub(t, v1alpha1.RoleAll)
	c.MayWrite = func(string) bool { return true }
	set := &v1alpha1.LeaderResourceSet{}
	musttest.Do(t, c.client.Get(t.Context(), types.NamespacedName{Namespace: "fleet", Name: "all"}, set))
	set.Spec.Prune, set.Spec.IntervalSeconds = ptr.To(false), 300
	set.Annotations = map[string]string{v1alpha1.KindsAnnotation: "apps/v1/Deployment,v1/ConfigMap"}
	in := c.state(set).inCluster("east")
	east := &member{ended: t.Context(), inventory: &inventory{
		tenants: func() *rest.Config { return &rest.Config{Host: server.URL} },
		of: map[schema.GroupVersionKind]*kindState{
			ofConfigMaps:  {kind: kind{ofConfigMaps.GroupVersion().WithResource("configmaps"), true}},
			ofDeployments: {kind: kind{ofDeployments.GroupVersion().WithResource("deployments"), true}},
		},
	}}
	return func(ctx context.Context, text string) (string, reached) {
		sent = nil
		m := parse([]source{of(v1alpha1.RoleAll, text)})
		_, err := c.pass(ctx, set, east, in, m.formOf(v1alpha1.RoleLeader, "shop"), v1alpha1.RoleLeader)
		if err != nil {
			t.Error(err)
		}
		return strings.Join(sent, " "), in.result
	}, now
}

// expiring is a context whose time is over when end is called.
type expiring struct {
	context.Context
	end context.CancelFunc
}

func newExpiring(t *testing.T) expiring {
	ctx, end := context.WithCancel(t.Context())
	return expiring{ctx, end}
}

func (e expiring) Err() error {
	if e.Context.Err() != nil {
		return context.DeadlineExceeded
	}
	return nil
}

// However long a member takes: a pass whose time is over is gone on with, also after the interval.
func TestAPassGoesOnWhereTheLastOneEnded(t *testing.T) {
	var ctx expiring
	var ends bool
	pass, now := passIn(t, func(r *http.Request, _ string) *apierrors.StatusError {
		if ends && path.Base(r.URL.Path) == "b" {
			ctx.end()
			<-r.Context().Done()
		}
		return nil
	})
	all := settings("a") + "---\n" + settings("b") + "---\n" + settings("c")
	for _, step := range []struct {
		what, want string
		passes     time.Duration
		ends       bool
		objects    int32
	}{
		{"the pass ends at b", "a b", 0, true, 1},
		{"the next one, after the interval", "b c", 6 * time.Minute, false, 3},
		{"one more", "", 4 * time.Minute, false, 3},
		{"one after the interval, which ends at b", "a b", time.Minute, true, 2},
		{"the next one", "b c", time.Second, false, 3},
	} {
		now.Advance(step.passes)
		ctx, ends = newExpiring(t), step.ends
		sent, is := pass(ctx, all)
		if sent != step.want || *is.Objects != step.objects {
			t.Errorf("%s: sent are %q, want %q: %+v", step.what, sent, step.want, is)
		}
		if len(is.Problems) > 0 != step.ends || step.ends && is.Problems[0].Reason != reason.Applying {
			t.Errorf("%s: %+v", step.what, is.Problems)
		}
	}
}

// An autoscaler does nothing at 0 replicas: where the form leaves them out, they are released.
func TestReplicasFollowWhereAnotherManagerAppliesTheRest(t *testing.T) {
	owned := conflict(metav1.StatusCause{
		Type: metav1.CauseTypeFieldManagerConflict, Message: `conflict with "argocd"`, Field: ".spec.template",
	})
	named := conflict(owned.ErrStatus.Details.Causes...)
	named.ErrStatus.Message = `Apply failed with 1 conflict: conflict with "admission webhook a denied the request"`
	denied := conflict()
	denied.ErrStatus.Message = `admission webhook "quota.shop" denied the request: not now`
	for name, test := range map[string]struct {
		text, want string
		answer     *apierrors.StatusError
	}{
		"the form has replicas":   {workload("Deployment", "web", 0), `"spec":{"replicas":0}`, owned},
		"a kind without replicas": {settings("web"), "nothing was sent", owned},
		"the form leaves them out": {
			strings.Replace(workload("Deployment", "web", 0), "replicas: 0,", "", 1), "", owned,
		},
		"the other manager has the name of a denial": {workload("Deployment", "web", 0), `"spec":{"replicas":0}`, named},
		"a webhook denies all of it":                 {workload("Deployment", "web", 0), "nothing was sent", denied},
	} {
		scaled := "nothing was sent"
		pass, _ := passIn(t, func(r *http.Request, body string) *apierrors.StatusError {
			if r.URL.Query().Get("fieldManager") == fieldManager {
				return test.answer
			}
			scaled = body
			return nil
		})
		_, is := pass(t.Context(), test.text)
		if test.want == "nothing was sent" {
			if scaled != test.want {
				t.Errorf("%s: %s", name, scaled)
			}
			continue
		}
		if !strings.Contains(scaled, `"name":"web"`) || !strings.Contains(scaled, test.want) ||
			strings.Contains(scaled, "spec") != (test.want != "") || len(is.Problems) != 1 {
			t.Errorf("%s: %s; %v", name, scaled, is.Problems)
		}
	}
}

// conflict is how API servers say who owns fields: of updates they say by what version.
func conflict(causes ...metav1.StatusCause) *apierrors.StatusError {
	err := apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "a", nil)
	err.ErrStatus.Details.Causes = causes
	return err
}

// An object of another UID is another object, and counts as deleted. What a webhook keeps from being deleted does not.
func TestWhatIsNotDeleted(t *testing.T) {
	denied := conflict()
	denied.ErrStatus.Message = `admission webhook "quota.shop" denied the request: not now`
	for name, answer := range map[string]*apierrors.StatusError{
		"another object": conflict(), "a webhook denies it": denied,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			answer.ErrStatus.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusConflict)
			_ = json.NewEncoder(w).Encode(answer.ErrStatus)
		}))
		t.Cleanup(server.Close)
		c, _, _ := hub(t, v1alpha1.RoleAll)
		c.MayWrite = func(string) bool { return true }
		p := &pass{
			controller: c, of: &v1alpha1.LeaderResourceSet{}, context: t.Context(),
			objects: metadata.NewForConfigOrDie(&rest.Config{Host: server.URL}),
		}
		err := p.delete(kind{ofConfigMaps.GroupVersion().WithResource("configmaps"), true}, id{name: "a"}, marked{uid: "u"})
		if (err != nil) != (answer == denied) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhatMayBeTakenOver(t *testing.T) {
	edited := metav1.StatusCause{Message: `conflict with "kubectl-edit" using v1`, Field: ".data.a"}
	applied := metav1.StatusCause{Message: `conflict with "argocd"`, Field: ".data.b"}
	scaled := metav1.StatusCause{Message: `conflict with "argocd"`, Field: ".spec.replicas"}
	many := make([]metav1.StatusCause, transport.MaxCauses)
	for i := range many {
		many[i] = edited
	}
	for name, test := range map[string]struct {
		err          error
		ours, theirs bool // what is done with an object of the set, and with one that it never had
	}{
		"an edit":                  {conflict(edited), true, false},
		"an apply":                 {conflict(applied), false, false},
		"an edit and an apply":     {conflict(edited, applied), false, false},
		"replicas":                 {conflict(scaled), true, true},
		"replicas and an edit":     {conflict(scaled, edited), true, false},
		"nobody is named":          {conflict(), false, false},
		"more than can be checked": {conflict(many...), false, false},
		"no conflict":              {apierrors.NewBadRequest("x"), false, false},
	} {
		ours, theirs := mayTakeOver(test.err, true), mayTakeOver(test.err, false)
		if ours != test.ours || theirs != test.theirs {
			t.Errorf("%s: %v and %v, want %v and %v", name, ours, theirs, test.ours, test.theirs)
		}
	}
}

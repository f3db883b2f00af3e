package worker

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard"
)

// fenced is a rig whose member enforces the fences that it stores, in all namespaces that they are bound to. It notes
// when they are looked at for edits, checked, and tried.
type fenced struct {
	*rig
	looked, checked, tried []time.Duration
	// open are parts of the names of policies that are not in force yet, and mute refuses more requests.
	open []string
	mute func(*http.Request) *metav1.Status
}

// newFenced wants fences in namespace shop, which has its Lease.
func newFenced(t *testing.T, wanted ...guard.Fence) *fenced {
	t.Helper()
	f := &fenced{rig: newRig(t)}
	f.wanted = wanted
	f.east.namespaces = map[string]map[string]string{"shop": nil}
	f.has(eastLease(20))
	f.east.refuses(f.answers)
	return f
}

// ofJobs is a fence of the Jobs in namespace shop with this label. Its policy has a name of its own.
func ofJobs(policy, label string) guard.Fence {
	return guard.Fences(us, &v1alpha1.LeadershipPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: policy},
		Spec: v1alpha1.LeadershipPolicySpec{
			Namespaces: v1alpha1.NamespaceSelection{Names: []string{"shop"}},
			Fencing:    &v1alpha1.Fencing{Schedules: &metav1.LabelSelector{MatchLabels: map[string]string{"run": label}}},
		},
	}, nil)[0]
}

// answers is what a member answers that enforces what it stores.
func (f *fenced) answers(req *http.Request) *metav1.Status {
	note := func(in *[]time.Duration) {
		now := time.Since(f.start)
		if n := len(*in); n == 0 || (*in)[n-1] != now {
			*in = append(*in, now)
		}
	}
	dryRun, reads := req.URL.Query().Get("dryRun") != "", req.Method == http.MethodGet
	switch {
	case reads && isLook(req):
		note(&f.looked)
	case reads && strings.HasSuffix(req.URL.Path, "policies/"+guard.AnchorName):
		note(&f.checked)
	case dryRun:
		note(&f.tried)
	}
	if f.mute != nil {
		if s := f.mute(req); s != nil {
			return s
		}
	}
	if dryRun {
		return f.tries(req)
	}
	return f.answer(req)
}

// isLook reports whether a request asks for the versions of what is stored.
func isLook(req *http.Request) bool {
	return strings.HasPrefix(req.URL.Query().Get("labelSelector"), v1alpha1.ManagedByLabel)
}

// tries answers the probe of a fence. It is refused where its policy is stored, and bound.
func (f *fenced) tries(req *http.Request) *metav1.Status {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		panic(err)
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	var probe coordinationv1.Lease
	if err := json.Unmarshal(body, &probe); err != nil {
		panic(err)
	}
	which, version, _ := strings.Cut(strings.TrimPrefix(probe.Name, "leasecast-"), "-probe-")
	in := path.Base(path.Dir(req.URL.Path))
	namespace := labels.Merge(f.east.namespaces[in], labels.Set{corev1.LabelMetadataName: in})
	for p, o := range f.east.stored {
		name := path.Base(p)
		if !strings.Contains(p, "bindings/") || !strings.Contains(name, "."+which+"-"+version+".") || f.isOpen(name) {
			continue
		}
		var b admissionv1.ValidatingAdmissionPolicyBinding
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &b); err != nil {
			panic(err)
		}
		s, err := metav1.LabelSelectorAsSelector(b.Spec.MatchResources.NamespaceSelector)
		if err != nil {
			panic(err)
		}
		if s.Matches(namespace) && f.east.stored[strings.Replace(p, "policybindings", "policies", 1)] != nil {
			refusal := failure(http.StatusForbidden, metav1.StatusReasonForbidden)
			refusal.Message = "ValidatingAdmissionPolicy '" + name + "' with binding '" + name + "' denied request: failed to configure binding: no params found " +
				"ValidatingAdmissionPolicy '" + name + "' with binding '" + name + "' denied request: nobody may create this Lease: " +
				"it is asked for to see whether the fence is in force"
			return refusal
		}
	}
	return nil
}

func (f *fenced) isOpen(name string) bool {
	return slices.ContainsFunc(f.open, func(part string) bool { return strings.Contains(name, part) })
}

// kept has the fences put in place, and forgets that.
func (f *fenced) kept() {
	f.t.Helper()
	end := f.runs(f.keepFences)
	pass(3 * time.Second)
	end()
	for _, one := range f.wanted {
		if err := f.Unfenced(one, "shop"); err != nil {
			f.t.Fatalf("it is not in force: %v", err)
		}
	}
	f.start, f.looked, f.checked, f.tried = time.Now(), nil, nil, nil
	f.news()
}

// stores reports whether the member stores a fence: its wall, because its gate is only where there are Leases.
func (f *fenced) stores(of guard.Fence) bool {
	wall := of.Names()[1]
	return len(f.east.holds("policies/"+wall)) == 1 && len(f.east.holds("bindings/"+wall)) == 1
}

// ofTeams is a fence of the Jobs in namespace shop, and in those of a team.
func ofTeams() guard.Fence {
	o := &v1alpha1.LeadershipPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "shops"},
		Spec:       v1alpha1.LeadershipPolicySpec{Fencing: &v1alpha1.Fencing{Schedules: &metav1.LabelSelector{}}},
	}
	o.Spec.Namespaces.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"none"}},
	}}
	return guard.Fences(us, o, nil)[0]
}

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
// when they are listed, and when and where they are probed.
type fenced struct {
	*rig
	listed, tried []time.Duration
	probed        []string // "gate shop", since it was last emptied
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
	probe := probeOf(req)
	switch {
	case isLook(req):
		note(&f.listed)
	case probe != "" && probe != guardProbe:
		note(&f.tried)
	}
	if f.mute != nil {
		if s := f.mute(req); s != nil {
			return s
		}
	}
	if probe != "" && probe != guardProbe {
		return f.tries(probe, path.Base(path.Dir(req.URL.Path)))
	}
	return f.answer(req)
}

// guardProbe is the name of the Lease that shows whether the guard is in force.
const guardProbe = "leasecast-guard-probe"

// probeOf returns the name of the Lease that a dry run creates, or nothing.
func probeOf(req *http.Request) string {
	if req.URL.Query().Get("dryRun") == "" {
		return ""
	}
	var probe coordinationv1.Lease
	if err := json.Unmarshal(bodyOf(req), &probe); err != nil {
		panic(err)
	}
	return probe.Name
}

// bodyOf returns what a request sends, and leaves it there.
func bodyOf(req *http.Request) []byte {
	if req.Body == nil {
		return nil
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		panic(err)
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	return body
}

// isLook reports whether a request lists what is stored.
func isLook(req *http.Request) bool {
	return strings.HasPrefix(req.URL.Query().Get("labelSelector"), v1alpha1.ManagedByLabel) &&
		path.Base(req.URL.Path) == "validatingadmissionpolicies"
}

// tries answers the probe of a fence. It is refused where its policy is stored, and bound.
func (f *fenced) tries(probe, in string) *metav1.Status {
	which, version, _ := strings.Cut(strings.TrimPrefix(probe, "leasecast-"), "-probe-")
	f.mu.Lock()
	f.probed = append(f.probed, which+" "+in)
	f.mu.Unlock()
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
	end := f.runs(f.keep)
	pass(3 * time.Second)
	end()
	for _, one := range f.wanted {
		if err := f.Unfenced(one, "shop"); err != nil {
			f.t.Fatalf("it is not in force: %v", err)
		}
	}
	f.start, f.listed, f.tried, f.probed = time.Now(), nil, nil, nil
	f.news()
}

// stores reports whether the member stores a fence: its wall, because its gate is only where there are Leases.
func (f *fenced) stores(of guard.Fence) bool {
	wall := of.Names()[1]
	return len(f.east.holds("policies/"+wall)) == 1 && len(f.east.holds("bindings/"+wall)) == 1
}

// jobsOf is a fence of all Jobs in namespace shop.
func jobsOf(mode v1alpha1.Enforcement) guard.Fence {
	return guard.Fences(us, &v1alpha1.LeadershipPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "shops"},
		Spec: v1alpha1.LeadershipPolicySpec{
			Namespaces: v1alpha1.NamespaceSelection{Names: []string{"shop"}},
			Fencing:    &v1alpha1.Fencing{Enforcement: mode, Schedules: &metav1.LabelSelector{}},
		},
	}, nil)[0]
}

// answersAbout has the member answer requests about fences of these policies in this way.
func (f *fenced) answersAbout(status *metav1.Status, policies ...string) {
	f.will(func(*rig) {
		f.mute = func(req *http.Request) *metav1.Status {
			about := func(policy string) bool {
				return strings.Contains(req.URL.Path, "admission") && req.Method != http.MethodGet &&
					(strings.Contains(req.URL.Path, "/"+policy+".fleet.") || bytes.Contains(bodyOf(req), []byte(policy+".fleet.")))
			}
			if slices.ContainsFunc(policies, about) {
				return status
			}
			return nil
		}
	})
}

// bound returns the namespaces that a stored binding covers or excludes, as it is marked.
func (f *fenced) bound(name string) (namespaces string, stored bool) {
	f.east.shows(func(a *memberAPI) {
		o := a.stored["/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/"+name]
		if stored = o != nil; stored {
			namespaces = o.GetAnnotations()["leasecast.dev/bound"]
		}
	})
	return namespaces, stored
}

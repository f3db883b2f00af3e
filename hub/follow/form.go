package follow

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

// form is what a set keeps in a cluster.
type form struct {
	objects  []object // in the order in which they are applied
	problems []v1alpha1.ResourceProblem
	hash     string
	// whole: nothing that may belong to it is missing. Only then what it does not have is deleted.
	whole bool
	// given is the planned change for which the cluster gives way, or nil. stops are the workloads that must have no
	// Pods then.
	given *giving
	stops map[id]pods
}

// formOf returns the form for a cluster with a role, Leader or Followers. Of two objects with one identity the first
// one counts. space is the namespace of the set.
func (m manifests) formOf(role v1alpha1.ClusterRole, space string) (f form) {
	f.problems, f.whole = slices.Clone(m.problems), len(m.problems) == 0
	seen, sum := map[id]bool{}, sha256.New()
	for _, o := range m.objects {
		if o.role != role && o.role != v1alpha1.RoleAll {
			continue
		}
		is := o.in(space)
		if seen[is] {
			f.problems = append(f.problems, problem(is.String(), reason.InvalidSource,
				"two documents have this object for one role: the first one is applied; leave the other one out"))
			continue
		}
		seen[is] = true
		f.objects = append(f.objects, o)
	}
	slices.SortStableFunc(f.objects, func(a, b object) int { return cmp.Compare(a.order(), b.order()) })
	for _, o := range f.objects {
		_, _ = fmt.Fprintln(sum, o.hash) // it never fails
	}
	f.hash = hex.EncodeToString(sum.Sum(nil)[:8])
	return f
}

// in is the identity of an object of a set in a namespace, before it is known whether its kind is in namespaces.
func (o object) in(space string) id {
	return id{o.kind.GroupKind(), cmp.Or(o.namespace, space), o.name}
}

// order puts first what others need.
func (o object) order() int {
	switch o.kind.GroupKind() {
	case schema.GroupKind{Kind: "Namespace"}:
		return 0
	case schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}:
		return 1
	default:
		return 2
	}
}

// writeKinds is the value of v1alpha1.KindsAnnotation, and readKinds its inverse. What cannot be read names no kind.
func writeKinds(all map[schema.GroupVersionKind]bool) string {
	var texts []string
	for k := range maps.Keys(all) {
		texts = append(texts, k.GroupVersion().String()+"/"+k.Kind)
	}
	slices.Sort(texts)
	return strings.Join(texts, ",")
}

func readKinds(text string) map[schema.GroupVersionKind]bool {
	all := map[schema.GroupVersionKind]bool{}
	for _, kind := range strings.Split(text, ",") {
		if len(all) == maxNamed {
			break
		}
		at := strings.LastIndex(kind, "/")
		if at < 0 {
			continue
		}
		if gv, err := schema.ParseGroupVersion(kind[:at]); err == nil && gv.Version != "" && kind[at+1:] != "" {
			all[gv.WithKind(kind[at+1:])] = true
		}
	}
	return all
}

// label is the value of v1alpha1.SetLabel on an object of a set. It is of this object only: others copy labels, as
// Kubernetes does from Services to EndpointSlices.
func label(set string, is id) string {
	sum := sha256.Sum256([]byte(is.kind.String() + "/" + is.namespace + "/" + is.name))
	return set + "-" + hex.EncodeToString(sum[:6])
}

// identity begins the values of v1alpha1.SetLabel on the objects of a set. It stays when the set moves to another hub.
func identity(namespace, name string) string {
	sum := sha256.Sum256([]byte(namespace + "/" + name))
	return hex.EncodeToString(sum[:16])
}

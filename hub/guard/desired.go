package guard

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Desired is what the policies ask for in a member.
type Desired struct {
	Fences []Fence
	// Spaces holds each fence's active namespaces. The value is true where the namespace has the Lease.
	Spaces []map[string]bool
	// Denied holds, by name, the fences that an administrator of the member has not allowed. They are removed, or
	// not installed.
	Denied map[string]error
	// Invalid names the policies whose fences are not known.
	Invalid []string
	// Leases holds the hub's Leases.
	Leases map[types.NamespacedName]bool
}

// NewDesired returns what these fences, and the namespaces and Leases of a member, ask for.
func NewDesired(
	fences []Fence, invalid []string, namespaces []corev1.Namespace, leases []coordinationv1.Lease,
) Desired {
	d := Desired{
		Fences: fences, Invalid: invalid, Spaces: make([]map[string]bool, len(fences)),
		Denied: map[string]error{}, Leases: map[types.NamespacedName]bool{},
	}
	for i := range leases {
		d.Leases[types.NamespacedName{Namespace: leases[i].Namespace, Name: leases[i].Name}] = true
	}
	for i, f := range fences {
		d.Spaces[i] = map[string]bool{}
		if err := f.Denied(namespaces); err != nil {
			d.Denied[f.Name()] = err
		}
		for j := range namespaces {
			ns := &namespaces[j]
			active := ns.DeletionTimestamp.IsZero() && ns.Status.Phase != corev1.NamespaceTerminating
			if active && f.Selects(ns.Name, ns.Labels) {
				d.Spaces[i][ns.Name] = d.Leases[types.NamespacedName{Namespace: ns.Name, Name: f.LeaseName()}]
			}
		}
	}
	return d
}

// open returns the active namespaces in which a fence that is not denied is not in force yet.
func (d Desired) open(unfenced func(f Fence, namespace string) error) map[string]bool {
	open := map[string]bool{}
	for i, f := range d.Fences {
		for ns := range d.Spaces[i] {
			if d.Denied[f.Name()] == nil && unfenced(f, ns) != nil {
				open[ns] = true
			}
		}
	}
	return open
}

// openTo returns the open namespaces that fence i does not cover. The value is true where the namespace has its
// Lease.
func (d Desired) openTo(i int, open map[string]bool) map[string]bool {
	to := map[string]bool{}
	for ns := range open {
		if _, covered := d.Spaces[i][ns]; !covered {
			to[ns] = d.Leases[types.NamespacedName{Namespace: ns, Name: d.Fences[i].LeaseName()}]
		}
	}
	return to
}

// timeout bounds one turn.
func (d Desired) timeout() time.Duration {
	namespaces := 0
	for _, in := range d.Spaces {
		namespaces += len(in)
	}
	return Timeout + time.Duration(namespaces)*namespaceTimeout
}

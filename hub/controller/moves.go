package controller

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/election"
)

// moves are the namespaces whose leader is being changed as planned, each with its policy. Lost leaders are replaced
// without being counted.
type moves struct {
	mu sync.Mutex
	of map[types.NamespacedName]string
	// giving are the namespaces whose change waits until the leader's cluster has given way.
	giving map[types.NamespacedName]bool
}

// begin counts a planned change of a namespace. It returns false if the policy has as many as may go on at once.
func (m *moves) begin(v *decide.Snapshot) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	policy, others := v.Policy.Object.Name, 0
	for key, of := range m.of {
		if key.Namespace == v.Key.Namespace && of == policy && key != v.Key {
			others++
		}
	}
	if others >= v.Policy.MostMoves {
		return false
	}
	m.of[v.Key] = policy
	return true
}

// setWaiting notes whether a planned change waits until the leader's cluster has given way.
func (m *moves) setWaiting(namespace types.NamespacedName, waits bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if delete(m.giving, namespace); waits {
		m.giving[namespace] = true
	}
}

// forget drops the change of a namespace without a record.
func (m *moves) forget(namespace types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, namespace)
}

// found counts a change that an earlier tenure has begun, by the record as the first list shows it. No decision is made
// before that list.
func (m *moves) found(o *v1alpha1.NamespaceLeader) {
	if o.Spec.State == v1alpha1.StateEnding && election.Planned(o.Spec.Reason) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.of[client.ObjectKeyFromObject(o)] = o.Spec.Policy
	}
}

// note counts a change that is under way, and no longer one that has ended.
func (m *moves) note(v *decide.Snapshot, p decide.Plan) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := p.Record; m.giving[v.Key] {
		return // it counts while it waits
	} else if v.Policy == nil || p.Waiting == reason.Frozen || r.State != election.Ending ||
		!election.Planned(r.Reason) {
		delete(m.of, v.Key)
	} else {
		m.of[v.Key] = v.Policy.Object.Name
	}
}

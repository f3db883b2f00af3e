package controller

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/seal"
)

// workersHub is the hub as workers see it.
type workersHub struct{ *Controller }

func (h workersHub) Serve(ctx context.Context, fleetName string) (seal.Key, bool) {
	s, ok := h.seals.serve(ctx, fleetName)
	return s.Key, ok
}

func (h workersHub) Served(fleetName string) bool {
	here, _ := h.source.Served(fleetName)
	return here
}

func (h workersHub) Changed(key fleet.Key, namespace string) {
	h.sources.leaseChanged(key, namespace)
}

func (h workersHub) FencesChanged(key fleet.Key) { h.sources.policiesChangedIn(0, key.Fleet) }

func (h workersHub) Fences(ctx context.Context, key fleet.Key) (fs []guard.Fence, invalid []string, err error) {
	m, ok := h.Fleet.Member(key)
	if !ok {
		return nil, nil, nil
	}
	policies, err := h.policies.valid(ctx, key.Fleet, h.source.Members(key.Fleet))
	if err != nil {
		return nil, nil, err
	}
	lost := func(p *decide.Policy) ([]string, error) { return h.policies.lostIn(ctx, p, policies, m) }
	return decide.FencesIn(h.HubID, policies, m, lost, func(p *decide.Policy) bool {
		return h.policies.leadsFor(ctx, p, m)
	})
}

func (h workersHub) Requires(ctx context.Context, key fleet.Key) (rs []schema.GroupVersionResource, err error) {
	m, ok := h.Fleet.Member(key)
	if !ok {
		return nil, nil
	}
	policies, err := h.policies.asShown(ctx, key.Fleet)
	for _, p := range policies {
		if p.Requires != nil && p.Includes(&decide.Member{Member: m}) {
			rs = append(rs, p.Requires.Resources...)
		}
	}
	return rs, err
}

func (h workersHub) RelinquishRecords(ctx context.Context, fleetName string) error {
	return h.ledger.Relinquish(ctx, fleetName)
}

func (h workersHub) RecordReader(
	key fleet.Key, registration types.NamespacedName, why reason.Reason, message string,
) {
	if !h.Serves(key.Fleet) {
		return
	}
	// Events about the same objects are merged into one, with the first one's message. So each relates to its own
	// registration.
	var related runtime.Object
	if registration != (types.NamespacedName{}) {
		related = &corev1.ObjectReference{
			APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease", Namespace: registration.Namespace,
			Name: registration.Name,
		}
	}
	h.recordOnCluster(key, related, corev1.EventTypeWarning, string(why), "Register", message)
}

func (h workersHub) RecordGuard(key fleet.Key, why reason.Reason, message string) {
	if h.Serves(key.Fleet) {
		h.recordOnCluster(key, nil, corev1.EventTypeWarning, string(why), "Guard", message)
	}
}

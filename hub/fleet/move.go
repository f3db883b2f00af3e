package fleet

import (
	"context"
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// movePage is how many Clusters are read at once. Each may have more than a megabyte.
const movePage = 10

// Move is how far clusterctl move has come with a fleet.
type Move int

const (
	// Stays: the fleet does not move.
	Stays Move = iota
	// Moving: all Clusters are as during a move: paused, being deleted because they are in another hub now,
	// or gone after that.
	Moving
	// MovedAway: the fleet had Clusters, and all have gone to another hub.
	MovedAway
)

// Move asks the hub's API server how far a move has come. A move deletes its objects in any order. So call
// this when an object is missing, before you conclude anything from that. The move pauses the Clusters first,
// whatever a cache shows.
func (p *Provider) Move(ctx context.Context, fleet string) (Move, error) {
	ctx, cancel := context.WithTimeout(ctx, hubTimeout)
	defer cancel()
	var specs []spec
	var page clusterv1.ClusterList
	for more := true; more; more = page.Continue != "" {
		err := p.mgr.GetLocalManager().GetAPIReader().List(ctx, &page, client.InNamespace(fleet),
			client.HasLabels{v1alpha1.PriorityLabel}, client.Limit(movePage), client.Continue(page.Continue))
		if err != nil {
			return Stays, fmt.Errorf("list the Clusters of %s: %w", fleet, err)
		}
		for i := range page.Items {
			s := readSpec(&page.Items[i], nil)
			specs = append(specs, spec{paused: s.paused, moved: s.moved})
		}
	}
	for _, m := range p.of(fleet) {
		if s := m.get().spec; s.gone {
			specs = append(specs, s)
		}
	}
	return moveOf(specs, p.hasLeft(fleet)), nil
}

// moveOf judges by the Clusters of a fleet. left says that some have moved away.
func moveOf(specs []spec, left bool) Move {
	for _, s := range specs {
		if !s.paused && !s.moved {
			return Stays
		}
	}
	switch {
	case len(specs) > 0:
		return Moving
	case left:
		return MovedAway
	}
	return Stays
}

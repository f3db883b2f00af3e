package fleet

import (
	"context"
	"errors"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/hub/fleet/secrets"
	"github.com/leasecast/leasecast/hub/seal"
)

// MissingGrant says what the hub may not do with the Secrets of a fleet, and which command grants it, or why they
// cannot be listed. It is empty if nothing is missing, or if that is not known yet.
func (p *Provider) MissingGrant(fleet string) string { return p.secrets.Missing(fleet) }

// Ready returns an error while not all Clusters are known, or while a grant is missing, or Secrets cannot be listed, in
// one of the namespaces that Options name. A fleet that was found by its Clusters does not count: whoever may make a
// Cluster must not stop the hub.
func (p *Provider) Ready() error {
	select {
	case <-p.synced:
	default:
		return errors.New("the Clusters of the hub and their Secrets were not seen yet")
	}
	for _, name := range p.options.Namespaces {
		if missing := p.MissingGrant(name); missing != "" {
			return errors.New(missing)
		}
	}
	return nil
}

// newSecrets prepares to show Secrets.
func (r runner) newSecrets() *secrets.Store {
	return secrets.New(secrets.Options{
		Client: r.options.API, Metadata: r.options.Metadata, Timers: r.timers, Log: r.log,
		Seen:    r.seen,
		Changed: r.lookAgain,
		Wanted:  r.wanted,
	})
}

// seen handles a Secret that has changed, or is gone.
func (r runner) seen(ctx context.Context, fleet, name string) {
	if name == seal.SecretName {
		r.noteSeal(fleet)
		r.enqueueAll(ctx, fleet) // its key proves pins
		r.wake(fleet)            // a pin that was written before the key was known gets its proof
	}
	if cluster, ok := strings.CutSuffix(name, kubeconfigSuffix); ok && cluster != "" {
		r.work.Add(Key{Fleet: fleet, Name: cluster})
	}
}

// noteSeal records what the seal of a fleet said when it was seen last.
func (r runner) noteSeal(fleet string) {
	mark, _ := r.secrets.Seal(fleet)
	if !r.noteServed(fleet, mark) {
		return
	}
	for _, m := range r.of(fleet) {
		m.wakeAll()
		r.changed.Add(m.key)
	}
	if _, other := r.Served(fleet); other != "" {
		r.log.Info("Another installation of the hub serves the fleet, so this one changes nothing there",
			"fleet", fleet, "hubNamespace", other)
	}
}

// lookAgain enqueues all Clusters of a fleet, once its Secrets can be read or it is known why not.
func (r runner) lookAgain(ctx context.Context, fleet string) {
	r.noteSeal(fleet)
	r.enqueueAll(ctx, fleet)
	r.work.Add(everything) // there may be no Cluster
}

// enqueueAll enqueues all Clusters of a fleet.
func (r runner) enqueueAll(ctx context.Context, fleet string) {
	for _, c := range r.clusters(ctx, fleet) {
		r.work.Add(Key{Fleet: fleet, Name: c.Name})
	}
}

// wanted reports whether a Cluster of the fleet takes part, or may.
func (r runner) wanted(ctx context.Context, fleet string) bool {
	keeps := func(c clusterv1.Cluster) bool { return readSpec(&c, nil).keeps() }
	return slices.Contains(r.options.Namespaces, fleet) || slices.ContainsFunc(r.clusters(ctx, fleet), keeps)
}

// clusters lists the Clusters of a fleet, or of all namespaces if it is empty.
func (r runner) clusters(ctx context.Context, fleet string) []clusterv1.Cluster {
	var list clusterv1.ClusterList
	if err := r.mgr.GetLocalManager().GetCache().List(ctx, &list, client.InNamespace(fleet)); err != nil {
		r.log.Error(err, "Clusters not listed", "fleet", fleet) // the cache is local: it fails when the manager stops
	}
	return list.Items
}

// opened begins to show the Secrets of a fleet, and reports whether it is known what there is to see.
func (r runner) opened(ctx context.Context, fleet string) bool {
	r.secrets.Open(ctx, fleet)
	return r.secrets.Settled(fleet)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/process"
)

// Our side of the comparison: the same clusters and namespaces, the same duration of a lease. The fault is the
// same too, but takes away more here, because more of it runs in the clusters: the API server of the cluster that leads
// is paused, so that the hub gets no answer and no refusal, and the reader in that cluster is killed.
// A namespace has its next leader at the instant at which the reader in another cluster may act.

// readerRules are the rights that the member library needs to watch all namespaces.
var readerRules = []rbacv1.PolicyRule{
	{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"list", "watch"}},
}

// readers are our side.
type readers struct {
	drill       *harness.Drill
	records     *harness.Watch[*v1alpha1.NamespaceLeader]
	namespaces  []string
	kubeconfigs map[string]string // by cluster, as what follows
	running     map[string]*party
	started     int
}

// measureOurs counts what hub and readers ask of all API servers together, and takes away the leader again and again.
func measureOurs(ctx context.Context, b *bench) (err error) {
	r := &readers{namespaces: teams(b.sizes.compared), kubeconfigs: map[string]string{}, running: map[string]*party{}}
	o := harness.Options{Timings: harness.Default, AuditReads: true, Members: members(r.namespaces...)}
	if r.drill, err = b.start(ctx, o); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.drill.Stop()) }()
	defer func() { err = errors.Join(err, r.stop()) }()
	if r.records, err = r.drill.WatchRecords(ctx); err != nil {
		return err
	}
	defer r.records.Stop()
	if err := awaitLed(ctx, r.drill, len(r.namespaces)); err != nil {
		return err
	}
	for _, cluster := range clusters {
		if err := r.start(ctx, b, cluster); err != nil {
			return err
		}
	}
	b.say(fmt.Sprintf("%d namespaces are led; waiting %s for the beginning to be over", len(r.namespaces), 2*o.Timings.Duration))
	if err := process.Pass(ctx, 2*o.Timings.Duration); err != nil {
		return err
	}
	if b.figures[oursRequests], err = countRequests(ctx, b, r.drill.Fleet.Servers()); err != nil {
		return err
	}
	if err := errors.Join(r.drill.Check(), awaitLed(ctx, r.drill, len(r.namespaces))); err != nil {
		return fmt.Errorf("the minute was not steady: %w", err)
	}
	var took []time.Duration
	leader := clusters[0]
	for round := range b.sizes.faults {
		var t []time.Duration
		if t, leader, err = r.round(ctx, b, round, leader); err != nil {
			return fmt.Errorf("fault %d: %w", round+1, err)
		}
		took = append(took, t...)
	}
	b.figures[oursP50], b.figures[oursP99], b.figures[oursMax] = spread(took)
	return nil
}

// start starts a reader in a cluster. Each has files of its own, as one that was killed may leave half a line.
func (r *readers) start(ctx context.Context, b *bench, cluster string) error {
	file, known := r.kubeconfigs[cluster]
	if !known {
		var err error
		if file, err = accountFile(ctx, r.drill.Fleet.Member(cluster), b.dir(), "reader", readerRules); err != nil {
			return err
		}
		r.kubeconfigs[cluster] = file
	}
	r.started++
	p, err := startParty(b.dir(), fmt.Sprintf("reader-%s-%d", cluster, r.started), cluster, readerArg, child{kubeconfig: file})
	if err != nil {
		return err
	}
	r.running[cluster] = p
	return nil
}

func (r *readers) stop() error {
	var all []*party
	for _, p := range r.running {
		all = append(all, p)
	}
	return stopParties(all)
}

// round takes away the leader of all namespaces, and brings it back when all have another. It returns how
// long that took for each, and who leads now.
func (r *readers) round(ctx context.Context, b *bench, round int, leader string) (took []time.Duration, next string, err error) {
	var survivors []*party
	for _, cluster := range clusters {
		if err := r.running[cluster].awaitRole(ctx, r.namespaces, cluster == leader); err != nil {
			return nil, "", fmt.Errorf("before the fault: %w", err)
		}
		if cluster != leader {
			survivors = append(survivors, r.running[cluster])
		}
	}
	lost := r.drill.Fleet.Member(leader)
	fault := harness.Now().Boot
	if err := errors.Join(lost.Pause(), r.running[leader].Kill()); err != nil {
		return nil, "", err
	}
	took, err = awaitSuccession(ctx, survivors, r.namespaces, fault)
	if err := errors.Join(err, r.drill.Check(), lost.Resume()); err != nil {
		return nil, "", err
	}
	b.say(fmt.Sprintf("fault %d of %d: %s lost: %s", round+1, b.sizes.faults, leader, inWords(took)))
	if err := r.start(ctx, b, leader); err != nil {
		return nil, "", err
	}
	next, err = awaitSettled(ctx, r.drill, r.records, len(r.namespaces))
	return took, next, err
}

// awaitSettled returns when every one of so many namespaces is led by one cluster, and every cluster may be chosen everywhere.
// It follows the records by a watch, so that it asks the hub's API server for nothing.
func awaitSettled(
	ctx context.Context, d *harness.Drill, w *harness.Watch[*v1alpha1.NamespaceLeader], namespaces int,
) (leader string, err error) {
	err = d.Await(ctx, leadLimit, "one cluster leads and all may be chosen", func(context.Context) error {
		records := map[string]*v1alpha1.NamespaceLeader{}
		for _, s := range w.Seen() {
			records[s.Object.Name] = s.Object
			if s.Gone {
				delete(records, s.Object.Name)
			}
		}
		if len(records) < namespaces {
			return fmt.Errorf("there are %d records", len(records))
		}
		names := slices.Sorted(maps.Keys(records))
		leader = records[names[0]].Spec.Leader
		for _, name := range names {
			if err := settled(*records[name], leader); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	})
	return leader, err
}

func settled(record v1alpha1.NamespaceLeader, leader string) error {
	s := record.Spec
	if s.Leader != leader || s.State != v1alpha1.StateLeading || !isTrue(record, v1alpha1.ConditionReady) || !isTrue(record, v1alpha1.ConditionCopiesInPlace) {
		return fmt.Errorf("leader %q, state %s, %s", s.Leader, s.State, record.Status.Message)
	}
	if len(record.Status.Candidates) < len(clusters) {
		return fmt.Errorf("%d candidates", len(record.Status.Candidates))
	}
	for _, c := range record.Status.Candidates {
		if !c.Eligible {
			return fmt.Errorf("%s is not eligible: %s %s", c.Name, c.Reason, c.Message)
		}
	}
	return nil
}

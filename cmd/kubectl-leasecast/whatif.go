package main

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/act"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/ledger"
)

// mostOutcomes is how many outcomes are shown to people.
const mostOutcomes = 25

// change is what is assumed to happen.
type change struct {
	without, drain, fenced string           // Clusters
	priorities             map[string]int32 // by Cluster
	to                     string           // a Cluster to which one namespace is moved
}

// outcome is what would become of one namespace.
type outcome struct {
	Namespace string `json:"namespace"`
	Leader    string `json:"leader,omitempty"`
	// Next is the Cluster that would lead, or empty if nobody would.
	Next string `json:"next,omitempty"`
	// Reason is why the leader would be replaced, or empty if it would stay.
	Reason string `json:"reason,omitempty"`
	// Waits is what a decision would wait for, such as an operator, or empty.
	Waits string `json:"waits,omitempty"`
}

// whatIf is what would become of all namespaces, by the hub's own rules on what the records say. What the hub has
// promised is in no record, so no times are known.
func (s *snapshot) whatIf(assumed change) (all []outcome) {
	for i := range s.records {
		r := &s.records[i]
		policy := s.policy(r.Spec.Policy)
		if policy == nil || r.Spec.State == v1alpha1.StateRetired {
			continue
		}
		parsed := decide.ParsePolicy(policy)
		cs, p := s.candidatesOf(r, parsed, assumed), parsed.Election
		state := election.State{Record: ledger.RecordOf(&r.Spec), Sent: election.Sent{Final: true}}
		state.Frozen = act.Freeze(policy.Annotations).In(s.at) || act.Freeze(r.Annotations).In(s.at)
		state.Tenure.Started = lease.Reading{Wall: s.hub.since}
		now := lease.Reading{Wall: s.at, Boot: 24 * time.Hour}
		d := election.Next(now, &p, state, cs)
		o := outcome{Namespace: r.Name, Leader: r.Spec.Leader, Waits: string(d.Waiting)}
		if o.Next = d.Record.Leader; d.Record.State != election.Leading {
			o.Next, o.Reason = d.Record.Next, string(d.Record.Reason)
		}
		if o.Next == assumed.without || o.Next == assumed.fenced {
			o.Next = "" // the record keeps its name while nobody may follow
		}
		all = append(all, o)
	}
	return all
}

// candidatesOf returns the candidates of a record after a change.
func (s *snapshot) candidatesOf(
	r *v1alpha1.NamespaceLeader, policy *decide.Policy, assumed change,
) (cs []election.Candidate) {
	for _, of := range r.Status.Candidates {
		c := election.Candidate{
			Name: of.Name, Priority: of.Priority, Reason: of.Reason, Answering: true, Prepared: true,
			Fitness: fitness(of), Ordered: of.Name == assumed.to,
			Drained: of.Reason == reason.Drained || of.Name == assumed.drain,
		}
		if of.Reason == reason.RequiredUnhealthy {
			c.Required = election.RequiredFailed
		}
		if priority, edited := assumed.priorities[of.Name]; edited {
			c.Priority = priority
		}
		if o, err := s.cluster(of.Name); err == nil && policy.Spread {
			c.Weight = decide.Weight(r.Name, o.Annotations[v1alpha1.ClusterUIDAnnotation])
		}
		switch of.Name {
		case assumed.without:
			c.Fitness, c.Reason, c.Answering = election.Unfit, reason.Unreachable, false
		case assumed.fenced:
			c.Fitness, c.Reason, c.Answering, c.Fenced = election.Unfit, reason.Fenced, false, of.Name
		}
		cs = append(cs, c)
	}
	return cs
}

// fitness returns what the reason of a candidate says about its fitness.
func fitness(c v1alpha1.Candidate) election.Fitness {
	switch {
	case c.Eligible, c.Reason == reason.Drained:
		return election.Fit
	case c.Reason == reason.Paused, c.Reason == reason.Unguarded, c.Reason == reason.Unfenced,
		c.Reason == reason.InvalidPriority:
		return election.RetainOnly
	case c.Reason == reason.NeverReached:
		return election.Unknown
	default:
		return election.Unfit
	}
}

func (p *plugin) whatIfCommand() *cobra.Command {
	var assumed change
	var priorities []string
	c := &cobra.Command{
		Use: "what-if", Short: "What would move where, by the hub's own rules; nothing is written", Args: cobra.NoArgs,
		Example: example("what-if --without east", "what-if --drain east", "what-if --priority west=200"),
		RunE: func(c *cobra.Command, _ []string) error {
			s, _, err := p.read(c.Context())
			if err != nil {
				return err
			}
			if assumed.priorities, err = prioritiesOf(priorities); err != nil {
				return err
			}
			named := append(slices.Sorted(maps.Keys(assumed.priorities)), assumed.without, assumed.drain)
			for _, name := range named {
				if _, err := s.cluster(name); name != "" && err != nil {
					return err
				}
			}
			outcomes := s.whatIf(assumed)
			if done, err := p.printed(outcomes); done || err != nil {
				return err
			}
			err = printOutcomes(p.table(), outcomes)
			if slices.ContainsFunc(outcomes, func(o outcome) bool { return o.Next == "" }) {
				err = cmp.Or(err, errAttention)
			}
			return err
		},
	}
	c.Flags().StringVar(&assumed.without, "without", "", "assume that this Cluster is lost")
	c.Flags().StringVar(&assumed.drain, "drain", "", "assume that this Cluster is drained")
	c.Flags().StringArrayVar(&priorities, "priority", nil, "assume a priority, as `CLUSTER=N`")
	c.MarkFlagsOneRequired("without", "drain", "priority")
	p.outputs(c, "json", "yaml")
	return c
}

func prioritiesOf(edits []string) (map[string]int32, error) {
	all := map[string]int32{}
	for _, edit := range edits {
		name, text, _ := strings.Cut(edit, "=")
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < 0 {
			return nil, errors.New("--priority=" + edit + ": write CLUSTER=N, with N from 0 to 2147483647")
		}
		all[name] = int32(n)
	}
	return all, nil
}

// printOutcomes shows what moves, what nobody could lead, and how many stay.
func printOutcomes(t *table, all []outcome) error {
	var moves, lost []outcome
	for _, o := range all {
		switch {
		case o.Next == "":
			lost = append(lost, o)
		case o.Next != o.Leader || o.Waits != "":
			moves = append(moves, o)
		}
	}
	t.line("%d of %d namespaces would move, and nobody could lead %d; the others stay.", len(moves), len(all), len(lost))
	if len(moves)+len(lost) > 0 {
		t.line("")
		t.row("NAMESPACE", "FROM", "TO", "REASON", "WAITS FOR")
		for i, o := range slices.Concat(lost, moves) {
			if i == mostOutcomes {
				t.end()
				t.line("and %d more: -o yaml of what-if shows all", len(moves)+len(lost)-i)
				break
			}
			t.row(o.Namespace, cmp.Or(o.Leader, "-"), cmp.Or(o.Next, "nobody"), o.Reason, o.Waits)
		}
		t.end()
	}
	return t.err
}

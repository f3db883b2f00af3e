package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/cmd/kubectl-leasecast/report"
	"github.com/leasecast/leasecast/hub/act"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/ledger"
)

// mostOutcomes is how many outcomes are shown to people.
const mostOutcomes = 25

// change is what is assumed to happen.
type change struct {
	without, drain, fenced string           // Clusters
	priorities             map[string]int32 // by Cluster
	to                     string           // a Cluster to which one namespace is moved
	policy                 *decide.Policy   // another version of a policy
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
	// WithinSeconds is how long nobody may lead at most until Next does. Zero: it is not known, or nothing changes.
	WithinSeconds int64 `json:"withinSeconds,omitempty"`
}

// whatIf is what would become of all namespaces, by the hub's own rules. Of those that the hub has shown, it says how
// long each would take. What the hub has promised is in no record.
func (s *snapshot) whatIf(assumed change) (all []outcome) {
	for i := range s.records {
		r := &s.records[i]
		owner := s.policy(r.Spec.Policy)
		if owner == nil || r.Spec.State == v1alpha1.StateRetired {
			continue
		}
		policy := decide.ParsePolicy(owner)
		is, shown := s.cases[r.Name]
		if !shown {
			is = s.caseOf(r, policy)
		}
		s.assume(&is, policy, assumed)
		o, after := foresee(is)
		if shown && o.Next != "" && o.Next != o.Leader {
			o.WithinSeconds = int64((after + time.Second - 1) / time.Second)
		}
		o.Namespace = r.Name
		if o.Next == assumed.without || o.Next == assumed.fenced {
			o.Next = "" // the record keeps its name while nobody may follow
		}
		all = append(all, o)
	}
	return all
}

// unshown counts the namespaces of which the hub has shown no case.
func (s *snapshot) unshown(all []outcome) (n int) {
	for _, o := range all {
		if _, shown := s.cases[o.Namespace]; !shown {
			n++
		}
	}
	return n
}

// caseOf is what a decision on a record would rest on, as far as the record and its status say.
func (s *snapshot) caseOf(r *v1alpha1.NamespaceLeader, policy *decide.Policy) decide.Case {
	state := election.State{Record: ledger.RecordOf(&r.Spec)}
	isFrozen := func(by map[string]string) bool { return act.Freeze(by).At(s.at).In(s.at) }
	state.Frozen = isFrozen(policy.Object.Annotations) || isFrozen(r.Annotations)
	state.Tenure.Started = lease.Reading{Wall: s.hub.since}
	is := decide.Case{Namespace: r.Name, Policy: &policy.Election, State: state}
	is.Now = lease.Reading{Wall: s.at, Boot: 24 * time.Hour}
	for _, of := range r.Status.Candidates {
		c := election.Candidate{
			Name: of.Name, Priority: of.Priority, Reason: of.Reason, Answering: true, Fitness: fitness(of),
			Drained: of.Reason == reason.Drained,
		}
		if of.Reason == reason.RequiredUnhealthy {
			c.Required = election.RequiredFailed
		}
		if policy.Spread {
			c.Weight = s.weight(r.Name, of.Name)
		}
		is.Candidates = append(is.Candidates, c)
	}
	return is
}

// weight is the order among clusters of one priority where a policy spreads namespaces.
func (s *snapshot) weight(namespace, cluster string) uint64 {
	o, err := s.cluster(cluster)
	if err != nil {
		return 0
	}
	return decide.Weight(namespace, o.Annotations[v1alpha1.ClusterUIDAnnotation])
}

// assume changes a case under a policy.
func (s *snapshot) assume(is *decide.Case, policy *decide.Policy, assumed change) {
	is.State.Paced = false // planned changes take turns: this one's comes
	if p := assumed.policy; p != nil && p.Object.Name == policy.Object.Name {
		policy = p
		is.Policy, is.Patience = &p.Election, p.Thresholds.UnreachableAfter
		for i := range is.Candidates {
			s.place(&is.Candidates[i], is.Namespace, p)
		}
	}
	for i := range is.Candidates {
		c := &is.Candidates[i]
		// Whoever may lead is prepared in a moment; one who does not answer is not.
		c.Prepared = c.Answering
		if assumed.to != "" { // it replaces an order that the hub has shown
			c.Ordered = c.Name == assumed.to
		}
		c.Drained = c.Drained || c.Name == assumed.drain
		if priority, edited := assumed.priorities[c.Name]; edited && policy.Overrides[is.Namespace] != c.Name {
			c.Priority = priority
		}
		switch c.Name {
		case assumed.without:
			c.Fitness, c.Reason, c.Answering, c.Prepared = election.Unfit, reason.Unreachable, false, false
		case assumed.fenced:
			c.Fitness, c.Reason, c.Answering, c.Prepared = election.Unfit, reason.Fenced, false, false
			c.Fenced = c.Name
		}
	}
}

// place judges a candidate by another version of its policy.
func (s *snapshot) place(c *election.Candidate, namespace string, p *decide.Policy) {
	o, err := s.cluster(c.Name)
	if err != nil {
		return // it is gone
	}
	if n, err := strconv.ParseInt(o.Labels[v1alpha1.PriorityLabel], 10, 32); err == nil {
		c.Priority = int32(n)
	}
	if p.Overrides[namespace] == c.Name {
		c.Priority = math.MaxInt32
	}
	if c.Weight = 0; p.Spread {
		c.Weight = s.weight(namespace, c.Name)
	}
	if !p.Clusters.Matches(labels.Set(fleet.Selectable(o.Labels))) {
		c.Fitness, c.Reason = election.Unfit, reason.NotSelected
	}
}

// mostSteps bounds how many decisions are foreseen on one namespace.
const mostSteps = 200

// foresee plays the decisions on a case until another cluster leads, or nothing happens any more. It assumes that no
// reader releases a term early, so after is the longest that the change can take.
func foresee(is decide.Case) (o outcome, after time.Duration) {
	began, d := is.Now, election.Decision{}
	o.Leader = is.State.Record.Leader
	leader := slices.IndexFunc(is.Candidates, func(c election.Candidate) bool { return c.Name == o.Leader })
	if leader >= 0 && is.State.Record.State == election.Leading {
		if is.Candidates[leader].Reason == reason.Unreachable {
			is.Now = later(is.Now, is.Patience)
		}
		// Until then the hub may have sent renewals, also to a leader that does not answer.
		is.State.Sent.Until = is.Now.Wall.Add(is.State.Record.Duration)
		is.State.Sent.BootUntil = is.Now.Boot + is.State.Record.Duration
		is.State.Sent.Skew, is.State.Sent.Stop = is.State.Record.Skew, is.State.Record.Stop
	}
	is.State.Sent.Final = true
	for range mostSteps {
		d = is.Next()
		is.State.Record = d.Record
		if d.Persist && o.Reason == "" && d.Record.State != election.Leading {
			o.Reason = string(d.Record.Reason)
		}
		if d.Record.State == election.Leading && d.Record.Leader != o.Leader || !d.Persist && d.After <= 0 {
			break
		}
		is.Now = later(is.Now, max(d.After, time.Millisecond))
		if is.Now.Boot-began.Boot > foreseen {
			break
		}
	}
	o.Waits = string(d.Waiting)
	if d.Record.State == election.Leading {
		o.Next = d.Record.Leader
	}
	return o, is.Now.Boot - began.Boot
}

// foreseen is how far into the future decisions are played: beyond the longest term and the longest wait of a policy.
const foreseen = 48 * time.Hour

func later(at lease.Reading, d time.Duration) lease.Reading {
	return lease.Reading{Wall: at.Wall.Add(d), Boot: at.Boot + d}
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
	var file string
	c := &cobra.Command{
		Use: "what-if", Short: "What would move where and within what time, by the hub's own rules; nothing is written",
		Args: cobra.NoArgs,
		Example: example("what-if --without east", "what-if --drain east", "what-if --priority west=200",
			"what-if --priority west=200 -o yaml", "what-if --policy shops.yaml"),
		RunE: func(c *cobra.Command, _ []string) error {
			s, api, err := p.read(c.Context())
			if err != nil {
				return err
			}
			if err := assumed.parse(c.Context(), api, s, priorities, file); err != nil {
				return err
			}
			if p.output == "yaml" {
				return p.printChange(s, assumed)
			}
			if err := p.addCases(c.Context(), s); err != nil {
				_, _ = fmt.Fprintf(p.ErrOut, "No times, by the records alone: %s\n", report.Printable(err.Error()))
			}
			outcomes := s.whatIf(assumed)
			if n := s.unshown(outcomes); len(s.cases) > 0 && n > 0 {
				_, _ = fmt.Fprintf(p.ErrOut, "%d namespaces by the records alone: the hub has not shown them\n", n)
			}
			done, err := p.printed(outcomes)
			if !done {
				err = printOutcomes(p.table(), outcomes)
			}
			if err == nil && slices.ContainsFunc(outcomes, func(o outcome) bool { return o.Next == "" }) {
				err = errAttention
			}
			return err
		},
	}
	c.Flags().StringVar(&assumed.without, "without", "", "assume that this Cluster is lost")
	c.Flags().StringVar(&assumed.drain, "drain", "", "assume that this Cluster is drained")
	c.Flags().StringArrayVar(&priorities, "priority", nil, "assume a priority, as `CLUSTER=N`")
	c.Flags().StringVar(&file, "policy", "", "assume this version of a LeadershipPolicy, a `FILE`")
	c.Flags().StringVar(&p.hubAddress, "hub-address", "", "where on this machine the hub's metrics port can be reached; "+
		"default: a tunnel of the API server's to the Pod")
	c.MarkFlagsOneRequired("without", "drain", "priority", "policy")
	p.outputs(c, "json (what would happen)", "yaml (the change, for Git)")
	return c
}

// parse reads and checks the flags of what-if. The API server fills in and checks a policy, and stores nothing.
func (assumed *change) parse(
	ctx context.Context, api client.Client, s *snapshot, priorities []string, file string,
) (err error) {
	if assumed.priorities, err = prioritiesOf(priorities); err != nil {
		return err
	}
	for _, name := range append(slices.Sorted(maps.Keys(assumed.priorities)), assumed.without, assumed.drain) {
		if _, err := s.cluster(name); name != "" && err != nil {
			return err
		}
	}
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	edited := &v1alpha1.LeadershipPolicy{}
	if err := yaml.UnmarshalStrict(text, edited); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if edited.Namespace != "" && edited.Namespace != s.fleet {
		return fmt.Errorf("%s: it is of namespace %q: say -n %[2]s", file, edited.Namespace)
	}
	o := s.policy(edited.Name)
	if o == nil {
		return fmt.Errorf("%s: no policy %q in fleet %q: what-if compares with one that is in effect", file, edited.Name,
			s.fleet)
	}
	before := o
	o = o.DeepCopy()
	o.Spec = edited.Spec
	if err := api.Update(ctx, o, client.DryRunAll); err != nil {
		return fmt.Errorf("%s: %w", file, explainError(err))
	}
	if err := s.foreseeable(before, o); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if assumed.policy = decide.ParsePolicy(o); assumed.policy.Invalid != nil {
		return fmt.Errorf("%s: %w", file, assumed.policy.Invalid)
	}
	return nil
}

// foreseeable returns why it cannot be foreseen what another version of a policy would do, or nil. Of a Cluster that
// took no part so far, and of what was not required, the hub has no case.
func (s *snapshot) foreseeable(before, after *v1alpha1.LeadershipPolicy) error {
	was, is := decide.ParsePolicy(before), decide.ParsePolicy(after)
	for i := range s.clusters {
		of := labels.Set(fleet.Selectable(s.clusters[i].Labels))
		if is.Clusters.Matches(of) && !was.Clusters.Matches(of) {
			return fmt.Errorf("it also selects the Cluster %s, which takes no part so far: nothing is known of its health",
				s.clusters[i].Name)
		}
	}
	if !equality.Semantic.DeepEqual(before.Spec.Namespaces, after.Spec.Namespaces) ||
		!equality.Semantic.DeepEqual(before.Spec.Requires, after.Spec.Requires) {
		return errors.New("what-if cannot foresee other namespaces, nor another requires: leave them as they are")
	}
	return nil
}

// printChange writes the manifests that make the change, for kubectl apply and for Git.
func (p *plugin) printChange(s *snapshot, assumed change) error {
	if assumed.without != "" || assumed.drain != "" || assumed.policy != nil {
		return errors.New("-o yaml writes priorities: of a drain write the annotation with its end, and of a policy the file")
	}
	for _, name := range slices.Sorted(maps.Keys(assumed.priorities)) {
		text, err := yaml.Marshal(map[string]any{
			"apiVersion": clusterv1.GroupVersion.String(), "kind": "Cluster",
			"metadata": map[string]any{
				"namespace": s.fleet, "name": name,
				"labels": map[string]string{v1alpha1.PriorityLabel: strconv.Itoa(int(assumed.priorities[name]))},
			},
		})
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(p.Out, "---\n%s", text); err != nil {
			return err
		}
	}
	return nil
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
		t.row("NAMESPACE", "FROM", "TO", "WITHIN", "REASON", "WAITS FOR")
		for i, o := range slices.Concat(lost, moves) {
			if i == mostOutcomes {
				t.line("and %d more: -o json of what-if shows all", len(moves)+len(lost)-i)
				break
			}
			t.row(o.Namespace, cmp.Or(o.Leader, "-"), cmp.Or(o.Next, "nobody"), within(o.WithinSeconds), o.Reason, o.Waits)
		}
		t.end()
	}
	return t.err
}

// within is how long a change may take, in words.
func within(seconds int64) string {
	if seconds == 0 {
		return "-"
	}
	return (time.Duration(seconds) * time.Second).String()
}

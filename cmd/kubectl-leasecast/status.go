package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/act"
	"github.com/leasecast/leasecast/hub/election"
)

// mostRows is how many rows of Clusters, and of namespaces, a screen has.
const mostRows = 15

// unseen is the state of a Cluster of which no record says anything but that namespaces are missing.
const unseen reason.Reason = "Unseen"

// writtenWithin is how long the first Lease of a term, and the status that shows it, usually take at most.
const writtenWithin = 10 * time.Second

// fleetStatus is what the command status shows. Its JSON is for programs.
type fleetStatus struct {
	Fleet      string          `json:"fleet"`
	Hub        hubStatus       `json:"hub"`
	Clusters   []clusterStatus `json:"clusters"`
	Attention  []problem       `json:"attention"`
	Policies   []problem       `json:"policies"`
	Namespaces int             `json:"namespaces"`
	Leading    map[string]int  `json:"leading"`
}

type hubStatus struct {
	Alive    bool   `json:"alive"`
	Holder   string `json:"holder,omitempty"`
	Message  string `json:"message"`
	Replicas string `json:"replicas,omitempty"`
}

type clusterStatus struct {
	Name     string        `json:"name"`
	Priority string        `json:"priority"`
	State    reason.Reason `json:"state"`
	Leads    int           `json:"leads"`
	Note     string        `json:"note,omitempty"`
	bad      bool
}

// problem is something that needs attention.
type problem struct {
	Name   string `json:"name"`
	Leader string `json:"leader,omitempty"`
	Reason string `json:"reason"`
	Next   string `json:"next"` // what to do, or what the hub waits for
}

func (p *plugin) statusCommand() *cobra.Command {
	watch := false
	c := &cobra.Command{
		Use: "status", Short: "The hub, the Clusters, and what needs attention, on one screen", Args: cobra.NoArgs,
		Example: example("status", "status -n fleet-a -o wide", "status -w"),
		RunE: func(c *cobra.Command, _ []string) error {
			return p.watched(watch, func() error {
				s, _, err := p.read(c.Context())
				if err != nil {
					return err
				}
				is := statusOf(s)
				if done, err := p.printed(is); done || err != nil {
					return cmp.Or(err, is.verdict())
				}
				if err := is.print(p.table(), p.output == "wide"); err != nil {
					return err
				}
				return is.verdict()
			})
		},
	}
	p.outputs(c, "wide", "json", "yaml")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "show it again every two seconds")
	return c
}

// verdict is errAttention where something needs attention.
func (f *fleetStatus) verdict() error {
	bad := !f.Hub.Alive || len(f.Attention)+len(f.Policies) > 0
	if bad || slices.ContainsFunc(f.Clusters, func(c clusterStatus) bool { return c.bad }) {
		return errAttention
	}
	return nil
}

// statusOf finds out what needs attention.
func statusOf(s *snapshot) *fleetStatus {
	f := &fleetStatus{Fleet: s.fleet, Hub: hubStatusOf(s), Namespaces: len(s.records), Leading: map[string]int{}}
	for i := range s.records {
		r := &s.records[i]
		if r.Spec.State == v1alpha1.StateLeading {
			f.Leading[r.Spec.Leader]++
		}
		if is, bad := attention(s, r); bad {
			f.Attention = append(f.Attention, is)
		}
	}
	f.Clusters = clustersOf(s, f.Leading)
	for i := range s.policies {
		f.Policies = append(f.Policies, policyProblems(&s.policies[i])...)
	}
	return f
}

func hubStatusOf(s *snapshot) hubStatus {
	h := hubStatus{Alive: s.hub.alive(s.at), Holder: s.hub.holder, Message: s.hub.unknown}
	if s.hub.wanted > 0 {
		h.Replicas = fmt.Sprintf("%d of %d replicas are ready", s.hub.ready, s.hub.wanted)
	}
	renewed := ago(s.at, s.hub.renewed)
	switch {
	case h.Message != "":
	case h.Alive:
		h.Message = fmt.Sprintf("%s writes since %s, renewed %s", s.hub.holder, ago(s.at, s.hub.since), renewed)
	case s.hub.holder == "":
		h.Message = "no replica of the hub writes: none is elected; terms run out"
	default:
		h.Message = fmt.Sprintf("the hub is gone: %s last renewed its election %s by this machine's clock; terms run out",
			s.hub.holder, renewed)
	}
	return h
}

func ago(now, then time.Time) string {
	if then.IsZero() {
		return "never"
	}
	return duration.HumanDuration(max(0, now.Sub(then))) + " ago"
}

// attention returns what needs attention in a namespace, or false. A planned change that is under way needs none.
func attention(s *snapshot, r *v1alpha1.NamespaceLeader) (problem, bool) {
	is := problem{Name: r.Name, Leader: r.Spec.Leader, Reason: string(r.Spec.Reason), Next: r.Status.Message}
	if end := s.untilGone(r); !end.IsZero() && s.at.After(end) {
		is.Reason, is.Next = "TermOver", "the hub is gone, and the term ran out at "+end.UTC().Format(time.RFC3339)+
			" at the latest: start the hub"
		return is, true
	}
	if c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionFailoverPending); c != nil {
		is.Reason, is.Next = c.Type, c.Message
		return is, true
	}
	if c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionFrozen); c != nil {
		is.Reason, is.Next = c.Reason, c.Message // a freeze that has no effect has its own reason
		if lost, bad := lostLeader(r); bad {
			is.Next = lost + "; " + is.Next
		}
		return is, true
	}
	c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionLeasesInPlace)
	if c != nil && c.Status == metav1.ConditionFalse {
		is.Reason, is.Next = c.Reason, c.Message
		return is, true
	}
	switch r.Spec.State {
	case v1alpha1.StateLeading:
		if lost, bad := lostLeader(r); bad {
			is.Reason, is.Next, _ = strings.Cut(lost, ": ")
			return is, true
		}
		late := r.Spec.Since == nil || s.at.Sub(r.Spec.Since.Time) > writtenWithin
		return is, late && !meta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionReady)
	case v1alpha1.StateEnding:
		return is, !election.Planned(r.Spec.Reason)
	case v1alpha1.StateRetired:
		return is, false
	default:
		return is, true
	}
}

// lostLeader says what speaks against the leader, or false.
func lostLeader(r *v1alpha1.NamespaceLeader) (string, bool) {
	for _, c := range r.Status.Candidates {
		if c.Name == r.Spec.Leader && !c.Eligible && c.Reason != reason.Drained {
			return string(c.Reason) + ": " + c.Message, true
		}
	}
	return "", false
}

// clustersOf returns the Clusters, those with a problem first, then those that lead most.
func clustersOf(s *snapshot, leading map[string]int) []clusterStatus {
	states := map[string]map[v1alpha1.Candidate]int{}
	for i := range s.records {
		for _, c := range s.records[i].Status.Candidates {
			if states[c.Name] == nil {
				states[c.Name] = map[v1alpha1.Candidate]int{}
			}
			c.Readers, c.Priority = 0, 0
			states[c.Name][c]++
		}
	}
	all := make([]clusterStatus, 0, len(s.clusters))
	for i := range s.clusters {
		o := &s.clusters[i]
		c := clusterStatus{Name: o.Name, Priority: o.Labels[v1alpha1.PriorityLabel], Leads: leading[o.Name]}
		c.State, c.Note, c.bad = worst(states[o.Name])
		if c.Priority == "" {
			c.Priority, c.State, c.bad = "-", reason.NoPriority, false
		} else if len(states[o.Name]) == 0 {
			c.Note = fmt.Sprintf("no record shows it: kubectl -n %s describe cluster %s", s.fleet, o.Name)
		}
		switch drain := act.Drain(o.Annotations).At(s.at); {
		case !drain.In(s.at):
		case c.bad && c.State != reason.Drained:
			c.Note += "; drained " + drain.String()
		default:
			c.State, c.Note, c.bad = reason.Drained, drain.String(), false
		}
		if uid, declared := o.Annotations[v1alpha1.FencedAnnotation]; declared {
			c.State, c.bad = reason.Fenced, true
			if uid == "" || uid != o.Annotations[v1alpha1.ClusterUIDAnnotation] {
				c.State, c.Note = reason.InvalidFence, "it has no effect: kubectl leasecast fence-cluster "+o.Name
			}
		}
		all = append(all, c)
	}
	slices.SortStableFunc(all, func(a, b clusterStatus) int {
		return cmp.Or(-cmp.Compare(rank(a), rank(b)), -cmp.Compare(a.Leads, b.Leads), cmp.Compare(a.Name, b.Name))
	})
	return all
}

func rank(c clusterStatus) int {
	switch {
	case c.bad:
		return 2
	case c.Note != "" && c.State != unseen: // in a large fleet, many of them are well
		return 1
	default:
		return 0
	}
}

// worst returns the state of a Cluster: what speaks against it in most namespaces, or that it may lead. That a
// namespace does not exist there is no state of the Cluster.
func worst(states map[v1alpha1.Candidate]int) (why reason.Reason, note string, bad bool) {
	why, most := unseen, 0
	for _, c := range slices.SortedFunc(maps.Keys(states), func(a, b v1alpha1.Candidate) int {
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message))
	}) {
		n := states[c]
		switch {
		case c.Reason == reason.NamespaceMissing, c.Reason == reason.NamespaceTerminating:
		case c.Reason == reason.Eligible:
			if !bad {
				why = reason.Eligible
			}
		case n > most:
			why, note, bad, most = c.Reason, c.Message, true, n
		}
	}
	return why, note, bad
}

// policyProblems are the conditions of a policy that are not as they should be.
func policyProblems(o *v1alpha1.LeadershipPolicy) (all []problem) {
	for _, c := range o.Status.Conditions {
		if c.Status != metav1.ConditionTrue && c.Type != v1alpha1.ConditionReady {
			all = append(all, problem{Name: o.Name, Reason: c.Type + ": " + c.Reason, Next: c.Message})
		}
	}
	if len(o.Status.Conditions) == 0 {
		all = append(all, problem{
			Name: o.Name, Reason: "NoConditions", Next: "no hub has seen it: see whether --namespace of the hub has this fleet",
		})
	}
	return all
}

// print shows the status to people.
func (f *fleetStatus) print(t *table, wide bool) error {
	t.line("HUB    %s", strings.TrimSuffix(f.Hub.Message+"; "+f.Hub.Replicas, "; "))
	t.line("FLEET  %s: %d namespaces, %d Clusters", f.Fleet, f.Namespaces, len(f.Clusters))
	t.line("")
	t.row("CLUSTER", "PRIORITY", "STATE", "LEADS", "NOTE")
	most := mostRows
	if wide {
		most = len(f.Clusters)
	}
	for i, c := range f.Clusters {
		if i >= most && !c.bad {
			t.line("and %d more: -o wide shows all", len(f.Clusters)-i)
			break
		}
		t.row(c.Name, c.Priority, string(c.State), strconv.Itoa(c.Leads), c.Note)
	}
	t.end()
	printProblems(t, "NAMESPACE", f.Attention, wide)
	printProblems(t, "POLICY", f.Policies, wide)
	if len(f.Attention)+len(f.Policies) == 0 && f.Hub.Alive {
		t.line("")
		t.line("No namespace and no policy needs attention.")
	}
	return t.err
}

func printProblems(t *table, of string, all []problem, wide bool) {
	if len(all) == 0 {
		return
	}
	t.line("")
	t.row(of, "LEADER", "REASON", "NEXT STEP")
	for i, is := range all {
		if i == mostRows && !wide {
			t.line("and %d more: -o wide shows all", len(all)-i)
			return
		}
		t.row(is.Name, cmp.Or(is.Leader, "-"), is.Reason, is.Next)
	}
	t.end()
}

package main

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

func (p *plugin) explainCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "explain NAMESPACE", Short: "Who leads a namespace, since when, who would be next, and why",
		Args:              cobra.ExactArgs(1),
		Example:           example("explain shop", "explain shop -o yaml"),
		ValidArgsFunction: p.namespaces,
		RunE: func(c *cobra.Command, args []string) error {
			s, _, err := p.read(c.Context())
			if err != nil {
				return err
			}
			r, err := s.record(args[0])
			if err != nil {
				return err
			}
			done, err := p.printed(r)
			if !done && err == nil {
				err = s.explain(p.table(), r)
			}
			if err != nil {
				return err
			}
			if _, bad := attention(s, r); bad {
				return errAttention
			}
			return nil
		},
	}
	p.outputs(c, "json", "yaml")
	return c
}

// explain says all that is known of a namespace.
func (s *snapshot) explain(t *table, r *v1alpha1.NamespaceLeader) error {
	spec := &r.Spec
	t.line("%s: %s", r.Name, s.inWords(r))
	if is, bad := attention(s, r); bad {
		t.line("%s: %s", is.Reason, is.Next)
	} else if r.Status.Message != "" {
		t.line("%s", r.Status.Message)
	}
	if spec.NotBefore != nil && spec.State == v1alpha1.StateEnding {
		t.line("%s:", notBefore(spec))
		t.line("  the last promise of %ds, and a clock skew of %dms%s", spec.LeaseDurationSeconds,
			spec.MaxClockSkewMilliseconds, stopTime(spec))
	}
	if spec.Policy != "" {
		t.line("Policy %s%s", spec.Policy, s.settings(spec.Policy))
	}
	t.line("")
	t.row("RANK", "CLUSTER", "PRIORITY", "MAY LEAD", "REASON", "MESSAGE")
	for i, c := range r.Status.Candidates {
		may := "no"
		if c.Eligible {
			may = "yes"
		}
		if c.Name == spec.Leader {
			may += ", leads"
		}
		t.row(strconv.Itoa(i+1), c.Name, strconv.Itoa(int(c.Priority)), may, string(c.Reason), c.Message)
	}
	t.end()
	if n := r.Status.OmittedCandidates; n > 0 {
		t.line("and %d more", n)
	}
	return t.err
}

// inWords says who leads.
func (s *snapshot) inWords(r *v1alpha1.NamespaceLeader) string {
	spec := &r.Spec
	switch spec.State {
	case v1alpha1.StateLeading:
		next := "nobody could follow"
		if spec.Next != "" {
			next = spec.Next + " would follow"
		}
		began := cmp.Or(spec.AcquireTime, spec.Since, &metav1.MicroTime{})
		return fmt.Sprintf("%s leads since %s, in epoch %d; %s", spec.Leader, ago(s.at, began.Time), spec.Epoch, next)
	case v1alpha1.StateEnding:
		return fmt.Sprintf("the term of %s ends (%s); next is %s", spec.Leader, spec.Reason, cmp.Or(spec.Next, "nobody yet"))
	case v1alpha1.StateRetired:
		return "no policy selects the namespace any more; the record goes when all promises have passed"
	default:
		return fmt.Sprintf("nobody leads (%s)", spec.Reason)
	}
}

// notBefore says what notBefore means in a term that ends.
func notBefore(spec *v1alpha1.NamespaceLeaderSpec) string {
	at := spec.NotBefore.UTC().Format(metav1.RFC3339Micro)
	switch {
	case spec.Fence.ClusterUID != "" && !ptr.Deref(spec.Fence.Voided, false):
		return spec.Leader + " must stay off until " + at
	case spec.RevokedEpoch != 0:
		return "The next term begins when all readers have released this one, or else at " + at
	default:
		return "The next term begins at " + at + " at the earliest"
	}
}

func stopTime(spec *v1alpha1.NamespaceLeaderSpec) string {
	if spec.StopTimeSeconds == 0 {
		return ""
	}
	return fmt.Sprintf(", and %ds that holders of the fenced locks may take to stop", spec.StopTimeSeconds)
}

// settings says what a policy wants when a better cluster returns, and who fails over.
func (s *snapshot) settings(name string) string {
	o := s.policy(name)
	if o == nil {
		return ", which does not exist any more"
	}
	text := ": a better cluster that returns takes nothing by itself"
	if o.Spec.Failback == v1alpha1.Automatic {
		text = fmt.Sprintf(": a better cluster gets the lead back after %ds", o.Spec.FailbackAfterSeconds)
	}
	if o.Spec.Failover == v1alpha1.Manual {
		text += "; a lost leader is replaced by your order only"
	}
	return text
}

func (p *plugin) historyCommand() *cobra.Command {
	watch := false
	c := &cobra.Command{
		Use: "history NAMESPACE", Short: "The last changes of leader, newest first", Args: cobra.ExactArgs(1),
		Example:           example("history shop", "history shop -w"),
		ValidArgsFunction: p.namespaces,
		RunE: func(c *cobra.Command, args []string) error {
			return p.watched(watch, func() error {
				s, _, err := p.read(c.Context())
				if err != nil {
					return err
				}
				r, err := s.record(args[0])
				if err != nil {
					return err
				}
				if done, err := p.printed(r.Status.History); done || err != nil {
					return err
				}
				t := p.table()
				t.row("TIME", "LEADER", "EPOCH", "STATE", "REASON", "MESSAGE")
				for _, h := range r.Status.History {
					t.row(h.Time.UTC().Format(time.RFC3339), cmp.Or(h.Leader, "-"), strconv.FormatInt(h.Epoch, 10), string(h.State),
						string(h.Reason), h.Message)
				}
				t.end()
				return t.err
			})
		},
	}
	p.outputs(c, "json", "yaml")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "show it again every two seconds")
	return c
}

// namespaces completes the name of a namespace that has a record.
func (p *plugin) namespaces(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if s, _, err := p.read(c.Context()); err == nil && len(args) == 0 {
		for i := range s.records {
			names = append(names, s.records[i].Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// clusters completes the name of a Cluster.
func (p *plugin) clusters(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if s, _, err := p.read(c.Context()); err == nil && len(args) == 0 {
		for i := range s.clusters {
			names = append(names, s.clusters[i].Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/cmd/kubectl-leasecast/report"
)

// order is an act of an operator: annotations on one object. An empty text removes one.
type order struct {
	object      client.Object
	annotations map[string]string
	// will says what the act does, and outcomes what it would move.
	will     string
	outcomes []outcome
	// typed is a word that has to be typed in place of a yes, or empty.
	typed string
	// done reports whether a fleet shows that the act is done, and what is left to be done. An error ends the wait: the
	// act has come to nothing. It is nil where an act has no flag --wait.
	done func(*snapshot) (done bool, left string, err error)
}

// actPatience bounds how long the hub is asked, before an act, for the times of what would move.
const actPatience = 3 * time.Second

var errUnchanged = errors.New("nothing was changed")

// actFlags are the flags of all acts.
type actFlags struct {
	yes, wait     bool
	outcomes      bool // are shown before the act
	until, reason string
	timeout       time.Duration
}

// operator has the commands by which people change who leads.
type operator struct{ *plugin }

// act makes a command of an act.
func (p operator) act(
	c *cobra.Command, completes func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective),
	of func(s *snapshot, args []string, f actFlags) (*order, error),
) (*cobra.Command, *actFlags) {
	f := &actFlags{}
	c.ValidArgsFunction = completes
	c.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	c.RunE = func(c *cobra.Command, args []string) error {
		s, api, err := p.read(c.Context())
		if err != nil {
			return err
		}
		if f.outcomes {
			asking, stop := context.WithTimeout(c.Context(), actPatience)
			_ = p.addCases(asking, s) // what it does not show in time has no time, and is judged by its record
			stop()
		}
		o, err := of(s, args, *f)
		if err != nil {
			return err
		}
		o.will += s.hub.warning(s.at)
		if err := p.confirm(o, f.yes); err != nil {
			return err
		}
		if err := annotate(c.Context(), api, o); err != nil {
			return explainError(err)
		}
		if !f.wait {
			return nil
		}
		return p.await(c.Context(), api, s.fleet, o, f.timeout)
	}
	return c, f
}

// confirm says what an act does, and asks.
func (p operator) confirm(o *order, yes bool) error {
	t := p.table()
	if o.outcomes != nil {
		t.err = printOutcomes(t, o.outcomes)
		t.line("")
	}
	t.line("%s", o.will)
	if t.err != nil || yes && o.typed == "" {
		return t.err
	}
	wanted := "yes"
	if o.typed != "" {
		wanted = o.typed
	}
	_, _ = fmt.Fprintf(p.ErrOut, "Type %s to go on: ", wanted)
	if answer, err := bufio.NewReader(p.In).ReadString('\n'); strings.TrimSpace(answer) != wanted {
		return errors.Join(errUnchanged, err)
	}
	return nil
}

// annotate writes the annotations.
func annotate(ctx context.Context, api client.Client, o *order) error {
	before, _ := o.object.DeepCopyObject().(client.Object)
	annotations := o.object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	for key, text := range o.annotations {
		if annotations[key] = text; text == "" {
			delete(annotations, key)
		}
	}
	o.object.SetAnnotations(annotations)
	return api.Patch(ctx, o.object, client.MergeFrom(before), client.FieldOwner("kubectl-leasecast"))
}

// await shows the progress of an act until it is done.
func (p operator) await(ctx context.Context, api client.Client, fleet string, o *order, timeout time.Duration) error {
	last := ""
	err := wait.PollUntilContextTimeout(ctx, time.Second, timeout, true, func(ctx context.Context) (bool, error) {
		s, err := load(ctx, api, fleet, p.hubNamespace, p.now())
		left := ""
		done := false
		if err == nil {
			done, left, err = o.done(s)
		} else {
			left, err = err.Error(), nil // it is read again
		}
		if left != last {
			last = left
			_, _ = fmt.Fprintln(p.ErrOut, report.Printable(left))
		}
		return done, err
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("it is not done within %v; the order stays: %s", timeout, last)
	}
	return err
}

// instant reads --until: an instant, or how long from now on.
func (f actFlags) instant(now time.Time) (string, error) {
	at, err := time.Parse(time.RFC3339, f.until)
	if d, other := time.ParseDuration(f.until); other == nil {
		at, err = now.Add(d), nil
	}
	if err != nil || !at.After(now) || at.After(now.AddDate(1, 0, 0)) {
		return "", fmt.Errorf("--until=%q: write a time within a year, as 2h or as 2026-01-31T18:00:00Z", f.until)
	}
	return at.UTC().Format(time.RFC3339), nil
}

// until adds the flags of acts that end at an instant.
func until(c *cobra.Command, f *actFlags) {
	c.Flags().StringVar(&f.until, "until", "", "the end of it, as 2h or as 2026-01-31T18:00:00Z")
	c.Flags().StringVar(&f.reason, "reason", "", "why, for people")
	_ = c.MarkFlagRequired("until")
}

// waits adds the flags of acts whose outcomes are shown before, and whose end can be awaited.
func waits(c *cobra.Command, f *actFlags) {
	f.outcomes = true
	c.Flags().BoolVar(&f.wait, "wait", false, "show the progress until it is done")
	c.Flags().DurationVar(&f.timeout, "timeout", 10*time.Minute, "how long to wait")
}

// actCommands are the acts of operators.
func (p operator) actCommands() []*cobra.Command {
	drain, f := p.act(&cobra.Command{
		Use: "drain CLUSTER", Short: "Move what a Cluster leads elsewhere, and give it nothing until an instant",
		Args:    cobra.ExactArgs(1),
		Example: example("drain east --until 2h --reason 'a new kernel'", "drain east --until 2h --wait --yes"),
	}, p.clusters, func(s *snapshot, args []string, f actFlags) (*order, error) {
		o, err := s.cluster(args[0])
		if err != nil {
			return nil, err
		}
		end, err := f.instant(s.at)
		return &order{
			object: o, will: fmt.Sprintf("%s is drained until %s.", o.Name, end), outcomes: s.whatIf(change{drain: o.Name}),
			annotations: map[string]string{v1alpha1.DrainUntilAnnotation: end, v1alpha1.DrainReasonAnnotation: f.reason},
			done:        leadsNothing(o.Name),
		}, err
	})
	until(drain, f)
	waits(drain, f)

	undrain, _ := p.act(&cobra.Command{
		Use: "undrain CLUSTER", Short: "End a drain; that moves nothing", Args: cobra.ExactArgs(1),
		Example: example("undrain east"),
	}, p.clusters, func(s *snapshot, args []string, _ actFlags) (*order, error) {
		o, err := s.cluster(args[0])
		if err == nil && o.Annotations[v1alpha1.DrainUntilAnnotation] == "" {
			err = fmt.Errorf("the Cluster %s is not drained", o.Name)
		}
		return &order{
			object: o, will: args[0] + " may lead again, and takes nothing by itself.",
			annotations: map[string]string{v1alpha1.DrainUntilAnnotation: "", v1alpha1.DrainReasonAnnotation: ""},
		}, err
	})

	freeze, f := p.act(&cobra.Command{
		Use: "freeze POLICY|namespace/NAMESPACE", Short: "Keep all leaders of a policy, or one, as they are until an instant",
		Args:    cobra.ExactArgs(1),
		Example: example("freeze shops --until 1h --reason 'an incident'", "freeze namespace/shop --until 1h"),
	}, cobra.NoFileCompletions, func(s *snapshot, args []string, f actFlags) (*order, error) {
		o, err := s.policyOrRecord(args[0])
		if err != nil {
			return nil, err
		}
		end, err := f.instant(s.at)
		return &order{
			object: o,
			will: fmt.Sprintf("%s is frozen until %s: no planned change and no failover. A leader that is lost is an outage "+
				"until then.", args[0], end),
			annotations: map[string]string{
				v1alpha1.FrozenUntilAnnotation: end, v1alpha1.FrozenReasonAnnotation: f.reason,
			},
		}, err
	})
	until(freeze, f)

	unfreeze, _ := p.act(&cobra.Command{
		Use: "unfreeze POLICY|namespace/NAMESPACE", Short: "End a freeze; changes that have waited begin",
		Args:    cobra.ExactArgs(1),
		Example: example("unfreeze shops"),
	}, cobra.NoFileCompletions, func(s *snapshot, args []string, _ actFlags) (*order, error) {
		o, err := s.policyOrRecord(args[0])
		if err == nil && o.GetAnnotations()[v1alpha1.FrozenUntilAnnotation] == "" {
			err = fmt.Errorf("%s is not frozen by an annotation of its own: a policy freezes all its namespaces", args[0])
		}
		return &order{
			object: o, will: args[0] + " is frozen no more: changes that have waited begin.",
			annotations: map[string]string{v1alpha1.FrozenUntilAnnotation: "", v1alpha1.FrozenReasonAnnotation: ""},
		}, err
	})
	return []*cobra.Command{drain, undrain, freeze, unfreeze, p.moveCommand(), p.rebalanceCommand(), p.fenceCommand()}
}

// policyOrRecord returns a policy, or the record of namespace/NAME.
func (s *snapshot) policyOrRecord(name string) (client.Object, error) {
	if namespace, ok := strings.CutPrefix(name, "namespace/"); ok {
		return s.record(namespace)
	}
	if o := s.policy(name); o != nil {
		return o, nil
	}
	return nil, fmt.Errorf("no policy %q in fleet %q: for one namespace write namespace/%s", name, s.fleet, name)
}

// leadsNothing is done when a Cluster leads nothing any more. What nobody else may lead stays, and is waited for. A
// retired record is not: nobody gets its namespace.
func leadsNothing(cluster string) func(*snapshot) (bool, string, error) {
	return func(s *snapshot) (bool, string, error) {
		left, stays := 0, 0
		for i := range s.records {
			if r := &s.records[i]; r.Spec.Leader == cluster && r.Spec.State != v1alpha1.StateRetired {
				if left++; r.Spec.State == v1alpha1.StateLeading && r.Spec.Next == "" {
					stays++
				}
			}
		}
		text := fmt.Sprintf("%d namespaces are left to move", left)
		if stays > 0 {
			text += fmt.Sprintf("; no other Cluster may lead %d of them", stays)
		}
		return left == 0, text, nil
	}
}

func (p operator) moveCommand() *cobra.Command {
	move, f := p.act(&cobra.Command{
		Use: "move NAMESPACE CLUSTER", Short: "Give one namespace to a Cluster, once, also against priorities",
		Args:    cobra.ExactArgs(2),
		Example: example("move shop west --reason 'the database is there'", "move shop west --wait --yes"),
	}, p.namespaces, func(s *snapshot, args []string, f actFlags) (*order, error) {
		r, err := s.record(args[0])
		if err != nil {
			return nil, err
		}
		if _, err := s.cluster(args[1]); err != nil {
			return nil, err
		}
		only := *s
		only.records = []v1alpha1.NamespaceLeader{*r}
		return &order{
			object: r, will: fmt.Sprintf("%s is moved to %s.", args[0], args[1]), outcomes: only.whatIf(change{to: args[1]}),
			annotations: map[string]string{v1alpha1.MoveToAnnotation: args[1], v1alpha1.MoveReasonAnnotation: f.reason},
			done: func(s *snapshot) (bool, string, error) {
				r, err := s.record(args[0])
				if err != nil {
					return false, "", err
				}
				leads := r.Spec.Leader == args[1] && r.Spec.State == v1alpha1.StateLeading
				if _, ordered := r.Annotations[v1alpha1.MoveToAnnotation]; !ordered && !leads {
					return false, "", fmt.Errorf("the hub has refused to move %s to %s: kubectl describe nsleader %s says why",
						args[0], args[1], args[0])
				}
				return leads, s.inWords(r), nil
			},
		}, nil
	})
	move.Flags().StringVar(&f.reason, "reason", "", "why, for people")
	waits(move, f)
	return move
}

func (p operator) rebalanceCommand() *cobra.Command {
	c, _ := p.act(&cobra.Command{
		Use: "rebalance POLICY", Short: "Give each namespace of a policy to its best Cluster, once", Args: cobra.ExactArgs(1),
		Example: example("rebalance shops --yes"),
	}, cobra.NoFileCompletions, func(s *snapshot, args []string, _ actFlags) (*order, error) {
		o := s.policy(args[0])
		if o == nil {
			return nil, fmt.Errorf("no policy %q in fleet %q", args[0], s.fleet)
		}
		return &order{
			object: o, will: "Each namespace of " + o.Name + " moves to its best Cluster, by planned changes.",
			annotations: map[string]string{v1alpha1.RebalanceAtAnnotation: s.at.UTC().Format(time.RFC3339)},
		}, nil
	})
	return c
}

func (p operator) fenceCommand() *cobra.Command {
	c, f := p.act(&cobra.Command{
		Use: "fence-cluster CLUSTER", Short: "Declare that a cluster is off: others get its namespaces without a wait",
		Args: cobra.ExactArgs(1), Example: example("fence-cluster east --wait"),
	}, p.clusters, func(s *snapshot, args []string, _ actFlags) (*order, error) {
		o, err := s.cluster(args[0])
		if err != nil {
			return nil, err
		}
		uid := o.Annotations[v1alpha1.ClusterUIDAnnotation]
		if uid == "" {
			return nil, fmt.Errorf("the Cluster %s is not pinned: the hub has never reached it, so it leads nothing", o.Name)
		}
		return &order{
			object: o, typed: o.Name, outcomes: s.whatIf(change{fenced: o.Name}),
			will: fmt.Sprintf("You declare that %s is off, and stays off until the instant that the hub prints in an event "+
				"Fenced. If it acts before that, TWO CLUSTERS LEAD.", o.Name),
			annotations: map[string]string{v1alpha1.FencedAnnotation: uid},
			done:        leadsNothing(o.Name),
		}, nil
	})
	waits(c, f)
	return c
}

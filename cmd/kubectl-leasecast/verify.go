package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet/transport"
)

// memberTimeout bounds how long a member is asked.
const memberTimeout = 10 * time.Second

// moreThanOne is the one problem that breaks the promise.
const moreThanOne = "MORE THAN ONE CLUSTER LEADS"

// disagreement is a Lease in a member that does not say what the record does.
type disagreement struct {
	Namespace string `json:"namespace"`
	Cluster   string `json:"cluster"`
	Problem   string `json:"problem"`
}

// verification is what the command verify has found.
type verification struct {
	Leases        int            `json:"leases"`
	Unread        []disagreement `json:"unread,omitempty"` // members that cannot be reached from here
	Disagreements []disagreement `json:"disagreements,omitempty"`
	seen          []sight
	at            time.Time // of the latest reading
}

func (p *plugin) verifyCommand() *cobra.Command {
	watch, page := time.Duration(0), ""
	var kubeconfigs map[string]string
	c := &cobra.Command{
		Use: "verify", Short: "Compare the Leases in all members with the records", Args: cobra.NoArgs,
		Example: example("verify", "verify --member-kubeconfigs east=east.kubeconfig,west=west.kubeconfig",
			"verify --watch=10m --report game-day.html"),
		RunE: func(c *cobra.Command, _ []string) error {
			if watch > 0 {
				return p.watchLeases(c.Context(), watch, page, kubeconfigs)
			}
			look, err := p.look(kubeconfigs, memberTimeout)
			if err != nil {
				return err
			}
			_, v, err := look(c.Context())
			if err != nil {
				return err
			}
			if done, err := p.printed(v); done || err != nil {
				return cmp.Or(err, v.verdict())
			}
			return cmp.Or(v.print(p.table()), v.verdict())
		},
	}
	kubeconfigFlag(c, &kubeconfigs)
	p.outputs(c, "json", "yaml")
	c.Flags().DurationVar(&watch, "watch", 0,
		"compare each second for a time, and write a page; without a time until Ctrl-C")
	c.Flags().Lookup("watch").NoOptDefVal = "8760h"
	c.Flags().StringVar(&page, "report", "leasecast.html", "with --watch: the `file` of the page")
	c.MarkFlagsMutuallyExclusive("watch", "output")
	return c
}

// look returns what reads the fleet and compares, and once more if something disagrees: a change may have come between
// two reads. Its error says why the management cluster could not be read. Then the snapshot before counts, if there is
// one, and members that have answered are read without it.
func (p *plugin) look(kubeconfigs map[string]string, timeout time.Duration) (
	func(context.Context) (*snapshot, *verification, error), error,
) {
	api, fleet, err := p.connect()
	var s *snapshot
	var members sync.Map
	connect := func(ctx context.Context, name string) (client.Client, error) {
		if c, ok := members.Load(name); ok {
			return c.(client.Client), nil
		}
		config, err := p.member(ctx, api, fleet, name, kubeconfigs[name])
		if err != nil {
			return nil, err
		}
		c, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
		if err == nil {
			members.Store(name, c)
		}
		return c, err
	}
	return func(ctx context.Context) (_ *snapshot, v *verification, err error) {
		for range 2 {
			var fresh *snapshot
			if fresh, err = load(ctx, api, fleet, p.hubNamespace, p.now()); err == nil {
				s = fresh
			} else if s == nil {
				return nil, nil, err
			}
			bounded, cancel := context.WithTimeout(ctx, timeout)
			v = s.verify(bounded, connect)
			cancel()
			if len(v.Disagreements) == 0 {
				break
			}
		}
		for _, d := range v.Unread {
			members.Delete(d.Cluster)
		}
		return s, v, err
	}, err
}

func (v *verification) verdict() error {
	if len(v.Disagreements)+len(v.Unread) > 0 {
		return errAttention
	}
	return nil
}

func (v *verification) print(t *table) error {
	t.line("%d Leases were read: %d disagree with their records.", v.Leases, len(v.Disagreements))
	if all := slices.Concat(v.Disagreements, v.Unread); len(all) > 0 {
		t.line("")
		t.row("NAMESPACE", "CLUSTER", "PROBLEM")
		for _, d := range all {
			t.row(cmp.Or(d.Namespace, "-"), d.Cluster, d.Problem)
		}
		t.end()
	}
	return t.err
}

// kubeconfigFlag adds the flag that names kubeconfigs of members.
func kubeconfigFlag(c *cobra.Command, to *map[string]string) {
	c.Flags().StringToStringVar(to, "member-kubeconfigs", nil,
		"kubeconfig `files` in place of the Secrets, as CLUSTER=FILE")
}

// member returns the way to a member, by a file or by the Secret of Cluster API. Whoever may write that Secret must not
// have this machine run a program or send a file: it is read as the hub reads it.
func (p *plugin) member(
	ctx context.Context, api client.Client, fleet, name, file string,
) (config *rest.Config, err error) {
	if file != "" {
		config, err = clientcmd.BuildConfigFromFlags("", file)
	} else {
		var secret corev1.Secret
		if err := api.Get(ctx, client.ObjectKey{Namespace: fleet, Name: name + "-kubeconfig"}, &secret); err != nil {
			return nil, fmt.Errorf("its kubeconfig: %w; or name a file in --member-kubeconfigs", err)
		}
		if _, err := transport.ParseKubeconfig(secret.Data["value"]); err != nil {
			return nil, fmt.Errorf("its kubeconfig is refused: %w", err)
		}
		config, err = clientcmd.RESTConfigFromKubeConfig(secret.Data["value"])
	}
	if err != nil {
		return nil, err
	}
	config.Timeout, config.WarningHandler = memberTimeout, rest.NoWarnings{}
	config.QPS, config.Burst = -1, -1 // one person asks
	return config, nil
}

// verify reads the Leases of all members, all at once, and then compares them.
func (s *snapshot) verify(
	ctx context.Context, connect func(context.Context, string) (client.Client, error),
) *verification {
	found := make([]coordinationv1.LeaseList, len(s.clusters))
	failed := make([]error, len(s.clusters))
	read := make([]time.Time, len(s.clusters)) // when each has answered: one that hangs must not age the others' Leases
	v := &verification{at: time.Now()}
	var reads sync.WaitGroup
	for i := range s.clusters {
		reads.Go(func() {
			api, err := connect(ctx, s.clusters[i].Name)
			if err == nil {
				err = api.List(ctx, &found[i], client.MatchingLabels{v1alpha1.ManagedLabel: "true"})
			}
			failed[i], read[i] = err, time.Now()
		})
	}
	reads.Wait()
	for i := range read {
		if failed[i] == nil && read[i].After(v.at) {
			v.at = read[i]
		}
	}
	holders, shown := map[string][]holder{}, map[string]bool{}
	for i := range s.clusters {
		o := &s.clusters[i]
		if failed[i] != nil {
			if o.Annotations[v1alpha1.ClusterUIDAnnotation] != "" || o.Labels[v1alpha1.PriorityLabel] != "" {
				why := "it cannot be read from here: " + failed[i].Error()
				v.Unread = append(v.Unread, disagreement{Cluster: o.Name, Problem: why})
			}
			continue
		}
		for j := range found[i].Items {
			l, _ := wire.Read(&found[i].Items[j])
			if l.LeadsHere() {
				holders[l.Namespace] = append(holders[l.Namespace], holder{sight{o.Name, l}, read[i]})
			}
			r, err := s.record(l.Namespace)
			if err != nil || l.Name != r.Spec.LeaseName {
				continue // of another fleet, or of a namespace that is not managed any more
			}
			v.Leases++
			v.seen = append(v.seen, sight{o.Name, l})
			shown[l.Namespace+"/"+o.Name] = true
			if problem := disagrees(r, l, o.Name, s.fleet, read[i]); problem != "" {
				v.Disagreements = append(v.Disagreements, disagreement{l.Namespace, o.Name, problem})
			}
		}
	}
	v.addMissing(s, shown)
	for namespace, all := range holders {
		if names := atOnce(all); len(names) > 0 {
			v.Disagreements = append(v.Disagreements, disagreement{namespace, fmt.Sprint(names), moreThanOne})
		}
	}
	slices.SortFunc(v.Disagreements, func(a, b disagreement) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Cluster, b.Cluster))
	})
	return v
}

// holder is a cluster whose Lease let it lead when it was read.
type holder struct {
	sight
	read time.Time
}

// atOnce returns the clusters that lead at once with another one, by the later reading of the two.
func atOnce(all []holder) (names []string) {
	for i, a := range all {
		if slices.ContainsFunc(slices.Delete(slices.Clone(all), i, i+1), func(b holder) bool {
			at := slices.MaxFunc([]time.Time{a.read, b.read}, time.Time.Compare)
			return a.Live(at) && b.Live(at)
		}) {
			names = append(names, a.cluster)
		}
	}
	return names
}

// addMissing adds the leaders whose Lease no member shows.
func (v *verification) addMissing(s *snapshot, shown map[string]bool) {
	unread := map[string]bool{}
	for _, d := range v.Unread {
		unread[d.Cluster] = true
	}
	for i := range s.records {
		r := &s.records[i]
		if leader := r.Spec.Leader; r.Spec.State == v1alpha1.StateLeading && !shown[r.Name+"/"+leader] && !unread[leader] {
			v.Disagreements = append(v.Disagreements, disagreement{r.Name, leader, "it leads by the record, and has no Lease"})
		}
	}
}

// disagrees says how a Lease differs from its record, or nothing.
func disagrees(r *v1alpha1.NamespaceLeader, l lease.Content, cluster, fleet string, now time.Time) string {
	leads := r.Spec.State == v1alpha1.StateLeading && r.Spec.Leader == cluster
	switch {
	case l.Epoch > r.Spec.Epoch:
		return fmt.Sprintf("its Lease has epoch %d, above the record's %d", l.Epoch, r.Spec.Epoch)
	case l.LeadsHere() && l.Live(now) && !leads &&
		(r.Spec.State != v1alpha1.StateEnding || r.Spec.Leader != cluster):
		return fmt.Sprintf("its Lease lets it lead, and by the record %s leads", cmp.Or(r.Spec.Leader, "nobody"))
	case leads && l.Holder != lease.Identity(cluster, fleet):
		return fmt.Sprintf("it leads by the record, and its Lease names %q", l.Holder)
	case leads && !l.Live(now):
		return "it leads by the record, and its Lease has run out"
	default:
		return ""
	}
}

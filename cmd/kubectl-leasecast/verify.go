package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
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
)

// memberTimeout bounds how long a member is asked.
const memberTimeout = 10 * time.Second

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
}

func (p *plugin) verifyCommand() *cobra.Command {
	kubeconfigs := map[string]string{}
	c := &cobra.Command{
		Use: "verify", Short: "Compare the Leases in all members with the records", Args: cobra.NoArgs,
		Example: example("verify", "verify --member-kubeconfigs east=east.kubeconfig,west=west.kubeconfig"),
		RunE: func(c *cobra.Command, _ []string) error {
			s, api, err := p.read(c.Context())
			if err != nil {
				return err
			}
			v := s.verify(c.Context(), func(ctx context.Context, name string) (client.Client, error) {
				return p.member(ctx, api, s.fleet, name, kubeconfigs[name])
			})
			if done, err := p.printed(v); done || err != nil {
				return cmp.Or(err, v.verdict())
			}
			return cmp.Or(v.print(p.table()), v.verdict())
		},
	}
	c.Flags().StringToStringVar(&kubeconfigs, "member-kubeconfigs", nil, "kubeconfig `files` in place of the Secrets, as CLUSTER=FILE")
	p.outputs(c, "json", "yaml")
	return c
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

// member connects to a member, by a file or by the Secret of Cluster API.
func (p *plugin) member(ctx context.Context, api client.Client, fleet, name, file string) (client.Client, error) {
	var config *rest.Config
	var err error
	if file != "" {
		config, err = clientcmd.BuildConfigFromFlags("", file)
	} else {
		var secret corev1.Secret
		if err := api.Get(ctx, client.ObjectKey{Namespace: fleet, Name: name + "-kubeconfig"}, &secret); err != nil {
			return nil, fmt.Errorf("its kubeconfig: %w; or name a file in --member-kubeconfigs", err)
		}
		config, err = clientcmd.RESTConfigFromKubeConfig(secret.Data["value"])
	}
	if err != nil {
		return nil, err
	}
	config.Timeout = memberTimeout
	return client.New(config, client.Options{Scheme: scheme})
}

// verify reads the Leases of all members.
func (s *snapshot) verify(ctx context.Context, connect func(context.Context, string) (client.Client, error)) *verification {
	v := &verification{}
	holders := map[string][]string{} // the clusters whose Leases let them act, by namespace
	for i := range s.clusters {
		name := s.clusters[i].Name
		if s.clusters[i].Labels[v1alpha1.PriorityLabel] == "" {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, memberTimeout)
		var leases coordinationv1.LeaseList
		api, err := connect(bounded, name)
		if err == nil {
			err = api.List(bounded, &leases, client.MatchingLabels{v1alpha1.ManagedLabel: "true"})
		}
		cancel()
		if err != nil {
			v.Unread = append(v.Unread, disagreement{Cluster: name, Problem: "it cannot be read from here: " + err.Error()})
			continue
		}
		for j := range leases.Items {
			l, _ := wire.Read(&leases.Items[j])
			r, none := s.record(l.Namespace)
			if none != nil || l.Name != r.Spec.LeaseName {
				continue // of another fleet, or of a namespace that is not managed any more
			}
			v.Leases++
			if l.LeadsHere() && l.Live(time.Now()) {
				holders[l.Namespace] = append(holders[l.Namespace], name)
			}
			if problem := disagrees(r, l, name, s.fleet); problem != "" {
				v.Disagreements = append(v.Disagreements, disagreement{l.Namespace, name, problem})
			}
		}
	}
	for namespace, names := range holders {
		if len(names) > 1 {
			v.Disagreements = append(v.Disagreements, disagreement{namespace, fmt.Sprint(names), "MORE THAN ONE CLUSTER LEADS"})
		}
	}
	slices.SortFunc(v.Disagreements, func(a, b disagreement) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Cluster, b.Cluster))
	})
	return v
}

// disagrees says how a Lease differs from its record, or nothing.
func disagrees(r *v1alpha1.NamespaceLeader, l lease.Content, cluster, fleet string) string {
	leads := r.Spec.State == v1alpha1.StateLeading && r.Spec.Leader == cluster
	switch {
	case l.Epoch > r.Spec.Epoch:
		return fmt.Sprintf("its Lease has epoch %d, above the record's %d", l.Epoch, r.Spec.Epoch)
	case l.LeadsHere() && l.Live(time.Now()) && !leads && r.Spec.State != v1alpha1.StateDraining:
		return fmt.Sprintf("its Lease lets it lead, and by the record %s leads", cmp.Or(r.Spec.Leader, "nobody"))
	case leads && l.Holder != lease.Identity(cluster, fleet):
		return fmt.Sprintf("it leads by the record, and its Lease names %q", l.Holder)
	case leads && !l.Live(time.Now()):
		return "it leads by the record, and its Lease has run out"
	default:
		return ""
	}
}

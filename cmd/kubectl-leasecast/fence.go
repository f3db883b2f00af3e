package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
)

const (
	// askTimeout bounds how long a member is asked about its fences.
	askTimeout = time.Minute
	// mostNamespaces is how many Namespaces of a member are read.
	mostNamespaces = 10_000
)

// fenceCheck is what the command fence check has found.
type fenceCheck struct {
	Policy   string        `json:"policy"`
	Hub      string        `json:"hub"` // the policy's condition FencesInForce
	Clusters int           `json:"clusters"`
	Problems []problem     `json:"problems"`
	Fences   []memberFence `json:"fences"`

	accounts map[string]bool // of a member: the fenced service accounts, and whether it has them
}

// memberFence is what a member shows of one fence.
type memberFence struct {
	Cluster string           `json:"cluster"`
	Fence   string           `json:"fence"`
	Problem string           `json:"problem,omitempty"` // why it is not in force
	Lock    string           `json:"lock,omitempty"`
	Holder  string           `json:"holder,omitempty"`
	Renewed metav1.MicroTime `json:"renewed,omitzero"`
	Leads   bool             `json:"leads"` // the cluster leads the lock's namespace by the record
}

// fenceQuestion is what the members are asked.
type fenceQuestion struct {
	*snapshot
	policy   *decide.Policy
	policies []*decide.Policy // of the fleet, oldest first
	leader   string           // of the one namespace of a policy with locks
	connect  func(ctx context.Context, cluster string) (*rest.Config, error)
}

func (p *plugin) fencesCommand() *cobra.Command {
	var kubeconfigs map[string]string
	c := &cobra.Command{
		Use: "check POLICY", Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		Short: "Who holds each fenced lock in each cluster, and whether each fence is in force; nothing is written",
		Long: "Who holds each fenced lock in each cluster, what the fence's own probes are answered there,\n" +
			"and which fenced service account no cluster has.\n" +
			"A probe is a dry run. The plugin must have the hub's version: another one looks for other fences.",
		Example: example("fence check shops", "fence check shops --member-kubeconfigs east=east.kubeconfig -o wide"),
		RunE: func(c *cobra.Command, args []string) error {
			s, api, err := p.read(c.Context())
			if err != nil {
				return err
			}
			q, err := s.askFences(args[0])
			if err != nil {
				return err
			}
			q.connect = func(ctx context.Context, cluster string) (*rest.Config, error) {
				return p.member(ctx, api, s.fleet, cluster, kubeconfigs[cluster])
			}
			f := q.check(c.Context())
			done, err := p.printed(f)
			if !done {
				err = f.print(p.table(), s.at, p.output == "wide")
			}
			if err == nil && len(f.Problems) > 0 {
				err = errAttention
			}
			return err
		},
	}
	kubeconfigFlag(c, &kubeconfigs)
	p.outputs(c, "wide", "json", "yaml")
	parent := &cobra.Command{Use: "fence", Short: "Check the fences of a policy"}
	parent.AddCommand(c)
	return parent
}

// askFences prepares the check of a policy's fences.
func (s *snapshot) askFences(name string) (*fenceQuestion, error) {
	q, o := &fenceQuestion{snapshot: s}, s.policy(name)
	if o == nil {
		return nil, fmt.Errorf("no policy %q in fleet %q: kubectl get lspol -A shows all", name, s.fleet)
	}
	if o.Spec.Fencing == nil {
		return nil, fmt.Errorf("the policy %s has no fence: write spec.fencing, with enforcement Warn to try it out", name)
	}
	if q.policy = decide.ParsePolicy(o.DeepCopy()); q.policy.Invalid != nil {
		return nil, fmt.Errorf("the policy %s is invalid, so its fences stay as they were: %w", name, q.policy.Invalid)
	}
	slices.SortFunc(s.policies, func(a, b v1alpha1.LeadershipPolicy) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for i := range s.policies {
		q.policies = append(q.policies, decide.ParsePolicy(&s.policies[i]))
	}
	if r, err := s.record(strings.Join(o.Spec.Namespaces.Names, ",")); err == nil {
		q.leader = r.Spec.Leader
	}
	return q, nil
}

// check asks all members at once.
func (q *fenceQuestion) check(ctx context.Context) *fenceCheck {
	f := &fenceCheck{Policy: q.policy.Object.Name, Hub: "nothing yet"}
	for _, c := range q.policy.Object.Status.Conditions {
		if c.Type == v1alpha1.ConditionFencesInForce {
			f.Hub = c.Reason + ": " + c.Message
		}
		about := c.Type == v1alpha1.ConditionFencesInForce || c.Type == v1alpha1.ConditionFenceTargetsFound
		if about && c.Status == metav1.ConditionFalse {
			f.add("policy "+f.Policy, c.Reason, c.Message)
		}
	}
	parts := make([]fenceCheck, len(q.clusters))
	var asked sync.WaitGroup
	for i := range q.clusters {
		o := &q.clusters[i]
		m := fleet.Member{Key: fleet.Key{Fleet: q.fleet, Name: o.Name}, Labels: fleet.Selectable(o.Labels)}
		_, takesPart := m.Labels[v1alpha1.PriorityLabel]
		if (!takesPart || !q.policy.Selects(m)) && !q.leads(q.policy, m) {
			continue
		}
		f.Clusters++
		asked.Go(func() {
			bounded, cancel := context.WithTimeout(ctx, askTimeout)
			defer cancel()
			if err := q.ask(bounded, m, &parts[i]); err != nil {
				parts[i].add(m.Name, "Unread", "it cannot be read from here: "+err.Error())
			}
		})
	}
	asked.Wait()
	if f.Clusters == 0 {
		f.add("policy "+f.Policy, "NoFence", "no Cluster that takes part is selected: nothing is fenced")
	}
	exists, without := map[string]bool{}, map[string][]string{}
	for i, part := range parts {
		f.Fences, f.Problems = append(f.Fences, part.Fences...), append(f.Problems, part.Problems...)
		for account, isThere := range part.accounts {
			if exists[account] = exists[account] || isThere; !isThere {
				without[account] = append(without[account], q.clusters[i].Name)
			}
		}
	}
	for _, account := range slices.Sorted(maps.Keys(without)) {
		if !exists[account] {
			f.add("policy "+f.Policy, "AccountMissing", fmt.Sprintf("there is no ServiceAccount %s in %s: compare "+
				"serviceAccounts with the accounts that the programs run as", account, strings.Join(without[account], ", ")))
		}
	}
	return f
}

func (f *fenceCheck) add(where, why, next string) {
	f.Problems = append(f.Problems, problem{Name: where, Reason: why, Next: next})
}

// leads reports whether a member leads a namespace of a policy by a record.
func (q *fenceQuestion) leads(p *decide.Policy, m fleet.Member) bool {
	return slices.ContainsFunc(q.records, func(r v1alpha1.NamespaceLeader) bool {
		return r.Spec.Policy == p.Object.Name && r.Spec.Leader == m.Name
	})
}

// lost returns the namespaces that another policy owns by the record.
func (q *fenceQuestion) lost(p *decide.Policy) (lost []string, _ error) {
	for i := range q.records {
		if decide.OwnedByOther(&q.records[i], p, q.policies, func(*decide.Policy) bool { return true }) {
			lost = append(lost, q.records[i].Name)
		}
	}
	return lost, nil
}

// ask asks a member. The hub's own rules say which fences it must have, and where.
func (q *fenceQuestion) ask(ctx context.Context, m fleet.Member, f *fenceCheck) error {
	config, err := q.connect(ctx, m.Name)
	if err != nil {
		return err
	}
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	namespaces, err := api.CoreV1().Namespaces().List(ctx, metav1.ListOptions{Limit: mostNamespaces})
	if err == nil && namespaces.Continue != "" {
		err = fmt.Errorf("it has more than %d Namespaces", mostNamespaces)
	}
	if err != nil {
		return err
	}
	leases, err := api.CoordinationV1().Leases("").List(ctx,
		metav1.ListOptions{LabelSelector: v1alpha1.ManagedLabel + "=true", Limit: mostNamespaces})
	if err != nil {
		return err
	}
	f.accounts = map[string]bool{}
	leads := func(p *decide.Policy) bool { return q.leads(p, m) }
	fences, _, err := decide.FencesIn("", q.policies, m, q.lost, leads)
	d := guard.NewDesired(fences, nil, namespaces.Items, leases.Items)
	for i, fence := range d.Fences {
		if fence.PolicyName() != q.policy.Object.Name {
			continue
		}
		is, in := memberFence{Cluster: m.Name, Fence: fence.Name()}, slices.Sorted(maps.Keys(d.Spaces[i]))
		if lock, isLock := fence.Lock(); isLock {
			q.readLock(ctx, api, fence, &is, f)
			if in = []string{lock.Namespace}; fence.Warns() && !slices.Contains(slices.Collect(maps.Values(d.Spaces[i])), true) {
				in = nil // without a Lease one that warns is silent
			}
		}
		for _, a := range fence.Accounts() {
			f.readAccount(ctx, api, m.Name, a)
		}
		why, err := "NotAllowed", d.Denied[fence.Name()]
		if err == nil {
			why, err = q.probeAll(ctx, api, fence, in)
		}
		if err != nil {
			is.Problem = why
			f.add(m.Name, why, cmp.Or(is.Lock, is.Fence)+": "+err.Error())
		}
		f.Fences = append(f.Fences, is)
	}
	if len(f.Fences) == 0 && err == nil {
		f.add(m.Name, "NoFence", "the policy fences nothing here: another policy owns its namespace or its lock")
	}
	return err
}

// readAccount adds whether a member has a service account. One without a namespace may be in any.
func (f *fenceCheck) readAccount(
	ctx context.Context, api kubernetes.Interface, cluster string, a v1alpha1.FencedServiceAccount,
) {
	name := strings.TrimPrefix(a.Namespace+"/"+a.Name, "/")
	found, err := api.CoreV1().ServiceAccounts(a.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, a.Name).String(), Limit: 1})
	if err != nil {
		f.add(cluster, "Unread", "the ServiceAccount "+name+": "+err.Error())
		return
	}
	f.accounts[name] = len(found.Items) > 0
}

// probesAtOnce is how many probes a member answers at once.
const probesAtOnce = 16

// probeAll returns why a fence is not in force in the first of these namespaces where it is not.
func (q *fenceQuestion) probeAll(
	ctx context.Context, api kubernetes.Interface, fence guard.Fence, in []string,
) (string, error) {
	why, failed := make([]string, len(in)), make([]error, len(in))
	var probes errgroup.Group
	probes.SetLimit(probesAtOnce)
	for i, namespace := range in {
		probes.Go(func() error {
			why[i], failed[i] = q.probe(ctx, api, fence, namespace)
			return nil
		})
	}
	_ = probes.Wait()
	for i, err := range failed {
		if err != nil {
			return why[i], err
		}
	}
	return "", nil
}

// readLock adds who holds a lock. This machine's clock says whether it is still held.
func (q *fenceQuestion) readLock(
	ctx context.Context, api kubernetes.Interface, fence guard.Fence, is *memberFence, f *fenceCheck,
) {
	lock, _ := fence.Lock()
	is.Lock, is.Leads = lock.String(), is.Cluster == q.leader
	l, err := api.CoordinationV1().Leases(lock.Namespace).Get(ctx, lock.Name, metav1.GetOptions{})
	if err != nil {
		if !apierrors.IsNotFound(err) {
			f.add(is.Cluster, "Unread", "the lock "+is.Lock+": "+err.Error())
		}
		return
	}
	is.Holder, is.Renewed = ptr.Deref(l.Spec.HolderIdentity, ""), ptr.Deref(l.Spec.RenewTime, is.Renewed)
	length := time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, int32(lock.Lease.Seconds()))) * time.Second
	if is.Leads || is.Holder == "" || !q.at.Before(is.Renewed.Add(length)) {
		return
	}
	next := fmt.Sprintf("the fence must stop it within %v", lock.StopTime())
	if fence.Warns() {
		next = "with enforcement Deny the fence stops it"
	}
	f.Problems = append(f.Problems, problem{
		Name: is.Cluster, Leader: q.leader, Reason: "HeldElsewhere",
		Next: fmt.Sprintf("%s holds the lock %s, renewed %s: %s", is.Holder, lock, ago(q.at, is.Renewed.Time), next),
	})
}

// probe returns why a fence is not in force in a namespace, and what to do. Where the namespace does not exist, or goes
// away, there is nothing to fence.
func (q *fenceQuestion) probe(
	ctx context.Context, api kubernetes.Interface, fence guard.Fence, namespace string,
) (why string, _ error) {
	err, next := fence.Verify(ctx, api, namespace), "try again"
	switch why = "Unread"; {
	case err == nil, apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return "", nil
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot create resource"):
		why, next = "Forbidden", "give --member-kubeconfigs one that may create Leases"
	case errors.Is(err, guard.ErrNotEnforced):
		why, next = "NotEnforced", "the hub restores it within seconds, or its condition FencesInForce says why it cannot"
		if !q.hub.alive(q.at) {
			next = "start the hub, which restores it"
		}
	}
	return why, fmt.Errorf("in namespace %s: %s: %w", namespace, next, err)
}

// print shows the locks where their cluster leads. A wide table has the others, too.
func (f *fenceCheck) print(t *table, now time.Time, wide bool) error {
	t.line("%s: %d fences in %d clusters, problems: %d.", f.Policy, len(f.Fences), f.Clusters, len(f.Problems))
	t.line("The hub says %s", f.Hub)
	printProblems(t, "WHERE", f.Problems, wide)
	for _, is := range f.Fences {
		if is.Lock != "" && (is.Leads || wide) {
			if t.rows.Len() == 0 {
				t.line("")
				t.row("LOCK", "CLUSTER", "HOLDER", "RENEWED", "LEADS")
			}
			t.row(is.Lock, is.Cluster, cmp.Or(is.Holder, "-"), ago(now, is.Renewed.Time), fmt.Sprint(is.Leads))
		}
	}
	t.end()
	return t.err
}

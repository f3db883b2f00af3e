package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/cmd/kubectl-leasecast/cases"
	"github.com/leasecast/leasecast/hub"
	"github.com/leasecast/leasecast/hub/decide"
)

// scheme holds the kinds that the plugin reads.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		v1alpha1.AddToScheme, clusterv1.AddToScheme, coordinationv1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme,
	} {
		utilruntime.Must(add(s))
	}
	return s
}()

// mapper maps these kinds, all of them in namespaces, without a question to the API server.
var mapper = func() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for kind := range scheme.AllKnownTypes() {
		m.Add(kind, meta.RESTScopeNamespace)
	}
	return m
}()

// snapshot is what the management cluster says of one fleet.
type snapshot struct {
	fleet    string
	at       time.Time
	hub      hubState
	clusters []clusterv1.Cluster
	policies []v1alpha1.LeadershipPolicy
	records  []v1alpha1.NamespaceLeader
	// cases holds, by namespace, what the hub's decisions rest on, if the hub has shown it.
	cases map[string]decide.Case
}

// hubState is what is known of the hub.
type hubState struct {
	holder         string
	since, renewed time.Time
	duration       time.Duration // of its election
	ready, wanted  int32         // replicas
	// unknown says why it is not known, or is empty.
	unknown string
}

// alive reports whether a replica of the hub may write at an instant, which this machine's clock shows.
func (h hubState) alive(now time.Time) bool {
	return h.unknown == "" && h.holder != "" && now.Before(h.renewed.Add(h.duration))
}

// warning returns what to add to an act's text about the hub that carries it out, or "".
func (h hubState) warning(now time.Time) string {
	switch {
	case h.unknown != "":
		return " It is not known whether the hub is at work, so this may happen at once: " + h.unknown + "."
	case !h.alive(now):
		return " THE HUB IS NOT AT WORK by this machine's clock: nothing happens before it is."
	default:
		return ""
	}
}

// load reads a fleet. What it may not read about the hub is no error.
func load(ctx context.Context, c client.Client, fleet, hubNamespace string, now time.Time) (*snapshot, error) {
	s := &snapshot{fleet: fleet, at: now}
	var clusters clusterv1.ClusterList
	var policies v1alpha1.LeadershipPolicyList
	var records v1alpha1.NamespaceLeaderList
	reads, at := errgroup.WithContext(ctx)
	for _, list := range []client.ObjectList{&records, &policies, &clusters} {
		reads.Go(func() error { return c.List(at, list, client.InNamespace(fleet)) })
	}
	reads.Go(func() error {
		s.hub = loadHub(at, c, hubNamespace)
		return nil
	})
	if err := reads.Wait(); err != nil {
		return nil, explainError(err)
	}
	s.clusters, s.policies, s.records = clusters.Items, policies.Items, records.Items
	slices.SortFunc(s.records, func(a, b v1alpha1.NamespaceLeader) int { return strings.Compare(a.Name, b.Name) })
	if len(s.clusters)+len(s.policies)+len(s.records) == 0 {
		return nil, fmt.Errorf("namespace %q has no Cluster, policy or record: name the fleet's namespace by -n", fleet)
	}
	return s, nil
}

func loadHub(ctx context.Context, c client.Client, namespace string) (h hubState) {
	key := client.ObjectKey{Namespace: namespace, Name: hub.ElectionName}
	var lease coordinationv1.Lease
	var deployment appsv1.Deployment
	switch err := c.Get(ctx, key, &lease); {
	case apierrors.IsNotFound(err):
		h.unknown = fmt.Sprintf("there is no Lease %s: no hub runs there, or --hub-namespace is another one", key)
	case err != nil:
		h.unknown = explainError(err).Error()
	default:
		h.holder = ptr.Deref(lease.Spec.HolderIdentity, "")
		h.duration = time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
		if lease.Spec.AcquireTime != nil {
			h.since = lease.Spec.AcquireTime.Time
		}
		if lease.Spec.RenewTime != nil {
			h.renewed = lease.Spec.RenewTime.Time
		}
	}
	if c.Get(ctx, key, &deployment) == nil { // a hub may run otherwise
		h.ready, h.wanted = deployment.Status.ReadyReplicas, ptr.Deref(deployment.Spec.Replicas, 1)
	}
	return h
}

// explainError says what to do about an error of the management cluster's API server.
func explainError(err error) error {
	var status apierrors.APIStatus
	switch {
	case meta.IsNoMatchError(err),
		apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details != nil &&
			status.Status().Details.Name == "":
		return fmt.Errorf("%w: install the CRDs of leasecast and Cluster API, in the version of this plugin", err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: ask for that right", err)
	default:
		return err
	}
}

// read reads the fleet that the flags name.
func (p *plugin) read(ctx context.Context) (*snapshot, client.WithWatch, error) {
	c, fleet, err := p.connect()
	if err != nil {
		return nil, nil, err
	}
	s, err := load(ctx, c, fleet, p.hubNamespace, p.now())
	return s, c, err
}

// addCases asks the hub what its decisions rest on. Where that fails, times are not known.
func (p *plugin) addCases(ctx context.Context, s *snapshot) error {
	config, err := p.flags.ToRESTConfig()
	if err != nil {
		return err
	}
	s.cases, err = cases.Read(ctx, cases.Hub{
		Config: config, Namespace: p.hubNamespace, Holder: s.hub.holder, Address: p.hubAddress, Version: version,
	}, s.fleet)
	return err
}

// record returns the record of a namespace.
func (s *snapshot) record(namespace string) (*v1alpha1.NamespaceLeader, error) {
	for i := range s.records {
		if s.records[i].Name == namespace {
			return &s.records[i], nil
		}
	}
	return nil, fmt.Errorf("no record of namespace %q in fleet %q: no policy there selects it in a Cluster that takes "+
		"part; kubectl get nsleader -A shows all", namespace, s.fleet)
}

// cluster returns a Cluster of the fleet.
func (s *snapshot) cluster(name string) (*clusterv1.Cluster, error) {
	for i := range s.clusters {
		if s.clusters[i].Name == name {
			return &s.clusters[i], nil
		}
	}
	return nil, fmt.Errorf("no Cluster %q in fleet %q", name, s.fleet)
}

// policy returns a policy of the fleet, or nil.
func (s *snapshot) policy(name string) *v1alpha1.LeadershipPolicy {
	for i := range s.policies {
		if s.policies[i].Name == name {
			return &s.policies[i]
		}
	}
	return nil
}

// untilGone is when the last promise of a term has passed if the hub has not written since, or the zero time: the hub
// renews until its own election has run out.
func (s *snapshot) untilGone(r *v1alpha1.NamespaceLeader) time.Time {
	switch {
	case s.hub.unknown != "" || s.hub.alive(s.at):
		return time.Time{}
	case r.Spec.State == v1alpha1.StateEnding && r.Spec.NotBefore != nil:
		return r.Spec.NotBefore.Time
	case r.Spec.State != v1alpha1.StateLeading:
		return time.Time{}
	}
	d := time.Duration(r.Spec.LeaseDurationSeconds) * time.Second
	return s.hub.renewed.Add(s.hub.duration + d)
}

package crd_test

import (
	"fmt"
	"strings"
	"testing"
)

func TestFencingIsAdmittedOrRefusedInWordsThatHelp(t *testing.T) {
	fencing := func(fields string) string { return "namespaces: {names: [team-a]}\nfencing: {" + fields + "}" }
	writes := func(account, resources string) string {
		return fencing(fmt.Sprintf("writes: [{serviceAccounts: [%s], resources: [%s]}]", account, resources))
	}
	objects := func(fields string) string { return fencing("writes: [{" + fields + "resources: [{names: [pods]}]}]") }
	const (
		checkout, pods = "{name: checkout}", "{names: [pods]}"
		badResource    = "a resource is named in the plural, in lower case and without subresources, such as deployments"
		badAccount     = "the name of an account must be a DNS subdomain"
		kubeAccount    = "the accounts of kube-* namespaces cannot be fenced"
		badSubject     = "exactly one of the fields in [serviceAccounts objectLabels] must be set"
		badGroup       = "a group must be a DNS subdomain"
		noLeases       = "Leases cannot be fenced"
	)
	tests := map[string]struct{ spec, want string }{
		"writes of an account":          {writes(checkout, pods), admitted},
		"of the core group by its name": {writes(checkout, "{group: '', names: [pods]}"), admitted},
		"schedules":                     {fencing("schedules: {matchLabels: {run: once}}"), admitted},
		"something is fenced": {
			spec: fencing("enforcement: Warn"),
			want: "say what is fenced: leaderElectionLocks, writes or schedules",
		},
		"an account of kube-system cannot be": {writes("{namespace: kube-system, name: a}", pods), kubeAccount},
		"an account holds no expression":      {writes(`{name: "a' || true"}`, pods), badAccount},
		"writes of objects with a label":      {objects("objectLabels: {led: shop}, "), admitted},
		"a fence has accounts or objects":     {objects(""), badSubject},
		"a fence has not both accounts and objects": {
			spec: objects("objectLabels: {led: a}, serviceAccounts: [{name: a}], "),
			want: badSubject,
		},
		"Leases cannot be, among others": {
			spec: writes(checkout, "{group: coordination.k8s.io, names: [a, leases]}"),
			want: noLeases,
		},
		"a resource is no pattern": {writes(checkout, "{names: ['*']}"), badResource},
		"a group is no pattern":    {writes(checkout, "{group: '*', names: [pods]}"), badGroup},
		"Jobs are selected as anything else": {
			spec: fencing("schedules: {matchExpressions: [{key: a, operator: In}]}"),
			want: badSelector,
		},
		"an account of a namespace like kube may": {writes("{namespace: kube, name: a}", pods), admitted},
		"a namespace of an account is a DNS label": {
			spec: writes("{namespace: a.b, name: a}", pods),
			want: "a namespace name must be a DNS label",
		},
	}
	checkSpecs(t, tests)
}

func TestALockIsAdmittedOrRefusedInWordsThatHelp(t *testing.T) {
	policy := func(namespaces, locks string) string {
		return "namespaces: {" + namespaces + "}\nfencing: {leaderElectionLocks: [" + locks + "]}"
	}
	const one = "names: [team-a]"
	lock := func(namespace, name string, lease, renew, retry int) string {
		return fmt.Sprintf("{namespace: %s, name: %s, "+
			"leaseDurationSeconds: %d, renewDeadlineSeconds: %d, retryPeriodSeconds: %d}", namespace, name, lease, renew, retry)
	}
	locks := func(locks ...string) string { return policy(one, strings.Join(locks, ", ")) }
	usual := lock("cert-manager", "cert-manager-controller", 60, 40, 15)
	const (
		clustersOwn  = "the cluster itself works with this Lease"
		hubsOwn      = "are the hub's own, and none of them is a lock"
		managed      = "has the name of the Leases that the hub writes itself"
		oneNamespace = "name exactly one in namespaces.names"
	)
	tests := map[string]struct{ spec, want string }{
		"a lock":             {locks(usual), admitted},
		"one in kube-system": {locks(lock("kube-system", "cert-manager", 60, 40, 15)), admitted},
		"no elector renews for so long": {
			spec: locks(lock("a", "b", 10, 10, 2)),
			want: "leaseDurationSeconds must be more than renewDeadlineSeconds",
		},
		"no elector tries so seldom": {
			spec: locks(lock("a", "b", 15, 12, 10)),
			want: "renewDeadlineSeconds must be more than 1.2 times retryPeriodSeconds",
		},
		"an elector may try as seldom as that": {locks(lock("a", "b", 15, 13, 10)), admitted},
		"heartbeats of nodes cannot be": {
			spec: locks(lock("kube-node-lease", "node-1", 40, 20, 10)),
			want: "the heartbeats of nodes",
		},
		"the cluster's controllers cannot be": {
			spec: locks(lock("kube-system", "kube-controller-manager", 15, 10, 2)),
			want: clustersOwn,
		},
		"its API servers cannot be": {locks(lock("kube-system", "apiserver-abc", 15, 10, 2)), clustersOwn},
		"its cloud controllers cannot be": {
			spec: locks(lock("kube-system", "cloud-controller-manager", 15, 10, 2)),
			want: clustersOwn,
		},
		"a controller manager elsewhere can be": {locks(lock("stock", "kube-controller-manager", 15, 10, 2)), admitted},
		"the hub's election cannot be":          {locks(lock("leasecast-system", "leasecast-hub", 15, 10, 2)), hubsOwn},
		"the Lease of its probe cannot be":      {locks(lock("kube-system", "leasecast-hub-probe", 15, 10, 2)), hubsOwn},
		"the managed Lease cannot be":           {locks(lock("team-a", "leasecast", 15, 10, 2)), managed},
		"one of its name elsewhere cannot be":   {locks(lock("team-b", "leasecast", 15, 10, 2)), managed},
		"one of a chosen leaseName cannot be":   {locks(lock("team-a", "other", 15, 10, 2)) + "\nleaseName: other", managed},
		"locks follow one namespace":            {policy("names: [team-a, team-b]", usual), oneNamespace},
		"no other namespaces are selected":      {policy(one+", selector: {}", usual), oneNamespace},
	}
	checkSpecs(t, tests)
}

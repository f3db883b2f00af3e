package integration

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// kubectl runs kubectl in config/samples, as the administrator of a server.
func (w *world) kubectl(s *fleet.Server, args ...string) {
	w.T.Helper()
	w.Must(harness.Kubectl(w.T.Context(), s, "config/samples", args...))
}

// samplesFollow waits until the samples' Deployments have so many replicas, and each cluster has this role.
func (w *world) samplesFollow(web, externalDNS string, roles map[string]string) {
	w.T.Helper()
	w.replicas("web", "web", web)
	w.replicas("external-dns", "external-dns", externalDNS)
	for _, m := range all {
		w.setting(m, "web", "leadership", "map[role:"+roles[m]+"]")
	}
}

// mayPublish checks that external-dns's account may read in a member what its sources are.
func (w *world) mayPublish(member string) {
	account := musttest.Get(w.Servers.Member(member).TokenConfig(w.T.Context(), "external-dns", "external-dns"))(w.T)
	c := musttest.Get(client.New(account, client.Options{}))(w.T)
	for _, list := range []client.ObjectList{
		&corev1.ServiceList{}, &corev1.PodList{}, &corev1.NodeList{},
		&discoveryv1.EndpointSliceList{}, &networkingv1.IngressList{},
	} {
		w.Must(c.List(w.T.Context(), list))
	}
}

// The samples are applied as they are. The hub has the rights in the members that their comments name, and no others.
func TestSamplesFollowTheLeader(t *testing.T) {
	t.Parallel()
	w := newWorldIn(t, "default", standard, three)
	for _, m := range all {
		member := w.Servers.Member(m)
		w.kubectl(member, "create", "namespace", "web")
		w.kubectl(member, "apply", "-f", "external-dns-member.yaml")
	}
	w.allow("follow", all...)
	w.mayPublish("east")
	w.kubectl(w.Servers.Hub(), "apply", "-f", "follow.yaml", "-f", "external-dns.yaml")
	w.startHub()
	leads := func(cluster string, in ...string) {
		for _, namespace := range []string{"web", "external-dns"} {
			w.Leads(cluster, namespace, firstElection+w.lost(), in...)
		}
	}
	leads("east", all...)
	w.samplesFollow("east 2 west 0 south 0", "east 1 west 0 south 0",
		map[string]string{"east": "leader", "west": "follower", "south": "follower"})

	t.Log("a planned change")
	w.order("web", "west")
	w.order("external-dns", "west")
	for _, name := range []string{"web", "external-dns"} {
		w.replicas(name, name, "east 0")
		w.observed("east", name, name)
	}
	leads("west", all...)
	swapped := map[string]string{"east": "follower", "west": "leader", "south": "follower"}
	w.samplesFollow("east 0 west 2 south 0", "east 0 west 1 south 0", swapped)
	w.awaitSet("web", v1alpha1.ConditionInOrder, reason.InOrder)
	w.awaitSet("external-dns", v1alpha1.ConditionInOrder, reason.InOrder)

	t.Log("the leader is lost: its Pods run on, and its ConfigMap says leader, until it is reached again")
	w.Servers.Member("west").Proxy().BlackHole()
	leads("east", "east", "south")
	w.samplesFollow("east 2 west 2 south 0", "east 1 west 1 south 0",
		map[string]string{"east": "leader", "west": "leader", "south": "follower"})
	w.Servers.Member("west").Proxy().Heal()
	w.awaitEligible("west", "web")
	w.samplesFollow("east 2 west 0 south 0", "east 1 west 0 south 0",
		map[string]string{"east": "leader", "west": "follower", "south": "follower"})
}

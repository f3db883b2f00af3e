package hubfailover

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// probe is the Lease by whose writes the hub probes a member, in kube-system.
const probe = "leasecast-hub-probe"

// TestSteadyHubOnlyRenews reads the audit logs of all API servers. While all members are well, the elected replica
// renews its election and the leaders' Leases and probes the members, and nobody but the API servers writes anything
// else. It owns two annotations of each Cluster, and no field of a kubeconfig's Secret.
func TestSteadyHubOnlyRenews(t *testing.T) {
	writer := shared.settled(t)
	v := look(t, shared)
	since := time.Now()
	musttest.Eventually(t, 2*patience, "nothing else is written for a renew interval", func(context.Context) error {
		_, others := stored(t, writer, since)
		if len(others) > 0 {
			since = time.Now()
		}
		return must.ErrorIf(time.Since(since) < harness.Default.Renew, "%v", others)
	})
	from := time.Now()
	harness.After(t, harness.Now().Boot+30*time.Second)
	expected, others := stored(t, writer, from)
	for _, w := range others {
		t.Errorf("written in a steady state: %s", w)
	}
	for lease, n := range expected {
		if n == 0 && !strings.HasSuffix(lease, probe) { // a renewal proves as much as a probe
			t.Errorf("%s was not written", lease)
		}
	}
	v.unbroken()
	v.undecided()
	for _, m := range shared.d.Fleet.Members() {
		c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: harness.FleetNamespace, Name: m.Name()}}
		kubeconfig := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name + "-kubeconfig"}}
		annotations := fmt.Sprintf(`{"f:metadata":{"f:annotations":{"f:%s":{},"f:%s":{}}}}`,
			v1alpha1.ClusterUIDAnnotation, v1alpha1.PinProofAnnotation)
		for o, want := range map[client.Object]string{c: annotations, kubeconfig: ""} {
			musttest.Do(t, shared.d.Hub.Get(t.Context(), client.ObjectKeyFromObject(o), o))
			got := ""
			for _, entry := range o.GetManagedFields() {
				if entry.Manager == harness.HubName {
					got += strings.ReplaceAll(entry.FieldsV1.GetRawString(), `".":{},`, "")
				}
			}
			if got != want {
				t.Errorf("%T %s: the hub owns %q, want %q", o, o.GetName(), got, want)
			}
		}
	}
}

// stored returns the writes since an instant that were not dry runs or reviews: how often each Lease was written that a
// steady hub writes, and the others.
func stored(t *testing.T, writer *replica, since time.Time) (expected map[string]int, others []string) {
	name := func(server, namespace, lease string) string {
		return server + " /apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases/" + lease
	}
	expected = map[string]int{name(shared.d.Fleet.Hub().Name(), harness.HubNamespace, harness.HubName): 0}
	for _, m := range shared.d.Fleet.Members() {
		expected[name(m.Name(), metav1.NamespaceSystem, probe)] = 0
	}
	for namespace, leader := range leaders {
		expected[name(leader, namespace, v1alpha1.DefaultLeaseName)] = 0
	}
	for _, s := range shared.d.Fleet.Servers() {
		for _, r := range musttest.Get(s.Requests())(t) {
			path, query, _ := strings.Cut(r.URI, "?")
			_, isExpected := expected[s.Name()+" "+path]
			switch {
			case !r.Writes() || !r.Received.After(since) || r.User == "system:apiserver",
				strings.Contains(query, "dryRun=All"), strings.HasSuffix(path, "reviews"):
			case isExpected && strings.Contains(r.Agent, writer.identity):
				expected[s.Name()+" "+path]++
			default:
				others = append(others, s.Name()+": "+r.String())
			}
		}
	}
	return expected, others
}

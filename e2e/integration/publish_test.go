package integration

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must"
)

// labelled returns the Clusters with a label, with commas between.
func (w *world) labelled(label string) (string, error) {
	var list clusterv1.ClusterList
	err := w.Hub.List(w.T.Context(), &list, client.InNamespace(w.Fleet), client.MatchingLabels{label: "true"})
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return strings.Join(names, ","), err
}

// awaitHints waits until the record's decisions and the labels of Clusters name these leaders, or nobody.
func (w *world) awaitHints(namespace, decided, label string) {
	w.T.Helper()
	w.Eventually(namespace+" is shown with "+decided+" and "+label, w.lost()+soon, func() error {
		r, err := w.Record(namespace)
		if err != nil {
			return err
		}
		labelled, err := w.labelled(v1alpha1.LeaderLabelPrefix + namespace)
		shown := ""
		for _, d := range r.Status.Decisions {
			shown += d.ClusterName
		}
		return must.ErrorIf(err != nil || r.Status.Decisions == nil || shown != decided || labelled != label,
			"decisions %q, labels %q: %v", shown, labelled, err)
	})
}

// Other controllers see who leads in the record's decisions, and, where the policy says so, in the labels of Clusters.
func TestWhoLeadsIsShownToOtherControllers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brief, three)
	a, b := w.namespace("a", all...), w.namespace("b", all...)
	shows := w.NewPolicy("shows", a)
	shows.Spec.Publish = v1alpha1.Publish{ClusterLabels: ptr.To(true)}
	w.Must(w.Hub.Create(t.Context(), shows))
	w.Policy("silent", b)
	w.startHub()
	w.Leads("east", a, firstElection, all...)
	w.Leads("east", b, firstElection, all...)
	w.awaitHints(a, "east", "east")
	w.awaitHints(b, "east", "")

	t.Log("an administrator labels a Cluster that does not lead")
	w.editCluster("west", func(c *clusterv1.Cluster) {
		metav1.SetMetaDataLabel(&c.ObjectMeta, v1alpha1.LeaderLabelPrefix+a, "true")
	})
	w.awaitHints(a, "east", "east")

	t.Log("the leader is lost")
	w.Servers.Member("east").Proxy().BlackHole()
	w.Leads("west", a, w.lost()+soon, "west", "south")
	w.awaitHints(a, "west", "west")

	t.Log("the policy shows nothing any more")
	w.editPolicy("shows", func(p *v1alpha1.LeadershipPolicySpec) { p.Publish = v1alpha1.Publish{} })
	w.awaitHints(a, "west", "")

	t.Log("nobody may lead")
	w.deletePolicy("silent")
	w.awaitHints(b, "", "")
}

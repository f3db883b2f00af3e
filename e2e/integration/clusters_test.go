package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
)

func TestAClusterThatCannotBeUsedSaysWhyAndIsNotChosen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, steady, three)
	a := w.namespace("a", all...)
	w.Policy("p", a)
	mute, ca := muteServer(t)
	strangers := map[string]struct {
		kubeconfig []byte
		reason     reason.Reason
		words      []string
	}{
		"none": {nil, reason.NoKubeconfig, []string{"there is no Secret none-kubeconfig"}},
		"broken": {
			kubeconfig: []byte("this is no kubeconfig: ["),
			reason:     reason.InvalidKubeconfig,
			words:      []string{"Secret broken-kubeconfig", "no v1 Config"},
		},
		"dead": {
			kubeconfig: kubeconfigTo(t, deadAddress(t), ca),
			reason:     reason.Unreachable,
			words:      []string{"does not answer", "connection refused"},
		},
		"mute": {kubeconfigTo(t, mute, ca), reason.Unreachable, []string{"does not answer"}},
	}
	for name, s := range strangers {
		w.addCluster(name, "1000", s.kubeconfig)
	}
	w.startHub()
	// The first leader waits for better Clusters, for at most initialDelaySeconds. Terms of an earlier hub end after
	// a term. Both times count from the creation of the record.
	w.Leads("east", a, firstElection, all...)
	r := harness.Get(w.Record(a))(w.T)
	waited := r.Spec.AcquireTime.Sub(r.CreationTimestamp.Time)
	within(t, "better Clusters are waited for", waited, max(v1alpha1.DefaultInitialDelay, w.term())+5*time.Second)
	j := w.keeps("east", a)
	for name, s := range strangers {
		w.awaitUnfit(name, a, s.reason, s.words...)
		w.awaitEvent(name, s.reason, s.words...)
	}
	j.check()

	// A Secret that comes later is used at once.
	w.setPriority("none", "1")
	w.Must(w.Hub.Delete(t.Context(), w.cluster("south")))
	w.noLease("south", a, soon)
	w.Eventually("the member is forgotten", 30*time.Second, func() error {
		if c, err := w.Candidate(a, "south"); err == nil {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	w.Must(w.Servers.SetKubeconfig(t.Context(), w.Fleet, "none", w.kubeconfig("south")))
	w.awaitEligible("none", a)
}

func TestALeaderWhosePriorityBecomesIllegibleLosesNothing(t *testing.T) {
	t.Parallel()
	w, a, _ := eastLeads(t, brief)
	j := w.keeps("east", a)
	for _, slip := range []string{"a-hundred", "1OO"} {
		w.setPriority("east", slip)
		w.awaitUnfit("east", a, reason.InvalidPriority, `"`+slip+`"`, "keeps what it leads")
	}
	w.setPriority("south", "75") // a change that is none of east's business
	w.Eventually("the record shows it", soon, func() error {
		c := must.Get(w.Candidate(a, "south"))
		return must.ErrorIf(c.Priority != 75, "%+v", c)
	})
	w.setPriority("east", "100")
	w.awaitEligible("east", a)
	j.check()
	w.setPriority("east", "abc")
	w.awaitUnfit("east", a, reason.InvalidPriority)
	w.setPriority("east", "5") // what it says now, it says
	w.Leads("south", a, w.ordered(), all...)
}

func TestNamesAsLongAsKubernetesAllowsAreManagedAndLongerOnesAreRefusedInWords(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brief, map[string]string{"east": "100", "west": "50"})
	long := w.namespace(strings.Repeat("n", 63-len(w.Fleet)-1), all...)
	w.Policy("p", long)
	// <cluster>.<fleet> must be a DNS subdomain, and <cluster>-kubeconfig too.
	fits := strings.Repeat("c", 63)
	limit := 253 - len("."+w.Fleet)
	w.addCluster(fits, "10", w.kubeconfig("south"))
	w.addCluster(strings.Repeat("d", limit+1), "1000", nil)
	w.addCluster(strings.Repeat("e", 253), "1000", nil)
	w.startHub()
	w.Leads("east", long, firstElection, all...)
	j := w.keeps("east", long)
	w.awaitEligible(fits, long)
	for _, name := range []string{strings.Repeat("d", limit+1), strings.Repeat("e", 253)} {
		w.awaitUnfit(name, long, reason.NameTooLong, "characters", "at most 253")
		w.awaitEvent(name, reason.NameTooLong, "at most 253")
	}
	j.check()
	w.setPriority(fits, "200")
	w.Leads(fits, long, w.ordered(), all...)
}

// pause sets or clears what clusterctl move sets.
func (w *world) pause(cluster string, on bool) {
	w.editCluster(cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(on) })
}

func TestAPausedClusterKeepsWhatItLeadsAndIsNeverNewlyChosen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brief, three)
	a := w.namespace("a", all...)
	w.Policy("p", a)
	w.pause("west", true)
	w.startHub()
	w.Leads("east", a, firstElection, all...)
	j := w.keeps("east", a)
	w.awaitUnfit("west", a, reason.Paused, "keeps what it has", "never newly chosen")
	w.pause("east", true)
	w.awaitUnfit("east", a, reason.Paused)
	w.setPriority("west", "1000") // nor does an edit choose it
	j.outlive()
	j.check()

	// The other way to pause a Cluster.
	w.editCluster("south", func(c *clusterv1.Cluster) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, clusterv1.PausedAnnotation, "")
	})
	w.awaitUnfit("south", a, reason.Paused)
	w.editCluster("south", func(c *clusterv1.Cluster) { delete(c.Annotations, clusterv1.PausedAnnotation) })
	w.awaitEligible("south", a)

	// The loss of the leader passes over the paused cluster, good as it is.
	w.pause("east", false)
	w.awaitEligible("east", a)
	w.Servers.Member("east").Proxy().BlackHole()
	w.Leads("south", a, w.lost(), "west", "south")
	// Unpausing moves nothing; an edit of a cluster that may lead does.
	w.pause("west", false)
	w.awaitEligible("west", a)
	w.keeps("south", a).check()
	w.setPriority("west", "2000")
	w.Leads("west", a, w.ordered(), "west", "south")
}

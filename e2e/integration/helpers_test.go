package integration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// epsilon is the ε of all profiles.
const epsilon = 250 * time.Millisecond

// The profiles of worlds.
var (
	// steady is for terms that must not end. A member may be silent for 5 s, and a renewal may be late by more.
	steady = harness.PolicyTimings(15*time.Second, time.Second, 5*time.Second, epsilon)
	// lasting is for terms that must outlast a restart of the hub on a machine that runs other tests.
	lasting = harness.PolicyTimings(30*time.Second, time.Second, 5*time.Second, epsilon)
	// brief is for terms whose end a test awaits. A member may be silent for as long.
	brief = harness.PolicyTimings(8*time.Second, time.Second, 5*time.Second, epsilon)
	// In a patient world a pause of the machine is no missed renewal, and a renewal seldom comes in between.
	patient = harness.PolicyTimings(15*time.Second, 3*time.Second, 3*time.Second, epsilon)
	// standard are the timings of a policy that names none, as in the samples.
	standard = harness.PolicyTimings(15*time.Second, 5*time.Second, 3*time.Second, time.Second)
)

// duration and renew are those of the world's policies.
func (w *world) duration() time.Duration {
	return time.Duration(w.Timings.LeaseDurationMilliseconds) * time.Millisecond
}

func (w *world) renew() time.Duration {
	return time.Duration(w.Timings.RenewIntervalMilliseconds) * time.Millisecond
}

func (w *world) timeout() time.Duration {
	return time.Duration(w.Timings.RequestTimeoutMilliseconds) * time.Millisecond
}

// term is D + ε: all that a leader was promised at an instant has ended that much later.
func (w *world) term() time.Duration { return w.duration() + epsilon }

// ordered is how long a term may take to end in order and the next one to begin.
func (w *world) ordered() time.Duration { return soon + w.term() }

// silent bounds the time in which the hub detects that a member is silent, or answers again. Requests may fail for two
// renewals, and the last one may time out.
func (w *world) silent() time.Duration { return soon + 2*w.renew() + w.timeout() }

// lost is how long the loss of a leader may take to give its namespace another one.
func (w *world) lost() time.Duration { return w.silent() + w.term() }

const (
	// soon is how long something may take that the hub does at once.
	soon = 10 * time.Second
	// measured is how long it may take that all clocks are measured to within ε. Answers show whole seconds, so one has
	// to come soon after a second begins.
	measured = 2 * soon
	// firstElection is how long the first leader of a namespace may take: it waits for better clusters.
	firstElection = soon + v1alpha1.DefaultInitialDelay + 5*time.Second
)

// awaitUnfit waits until the record says that a Cluster may not lead, for this reason
// and in words that include these.
func (w *world) awaitUnfit(cluster, namespace string, why reason.Reason, words ...string) {
	limit := soon
	if why == reason.Unreachable {
		limit = w.silent()
	}
	w.Eventually(fmt.Sprintf("%s may not lead %s: %s", cluster, namespace, why), limit, func() error {
		c := must.Get(w.Candidate(namespace, cluster))
		if c.Eligible || c.Reason != why {
			return fmt.Errorf("%+v", c)
		}
		return contains(c.Message, words...)
	})
}

// awaitEligible waits until the record says that a Cluster may lead.
func (w *world) awaitEligible(cluster, namespace string) {
	w.Eventually(cluster+" may lead "+namespace, w.silent(), func() error {
		return w.Eligible(namespace, cluster)
	})
}

// awaitEvent waits until an event about a Cluster reports the reason in words that
// include these.
func (w *world) awaitEvent(cluster string, why reason.Reason, words ...string) {
	w.Eventually(fmt.Sprintf("an event says of Cluster %s: %s", cluster, why), soon, func() error {
		c := w.cluster(cluster)
		var list eventsv1.EventList
		must.Do(w.Hub.List(w.T.Context(), &list, client.InNamespace(w.Fleet)))
		last := errors.New("there is none")
		for _, e := range list.Items {
			if e.Regarding.Name != cluster || e.Regarding.Kind != "Cluster" || e.Reason != string(why) {
				continue
			}
			if e.Regarding.UID != c.UID { // kubectl describe would not show it
				last = fmt.Errorf("the event regards UID %q, the Cluster has %q", e.Regarding.UID, c.UID)
				continue
			}
			if last = contains(e.Note, words...); last == nil {
				return nil
			}
		}
		return last
	})
}

// awaitPolicy is awaitCondition for a policy.
func (w *world) awaitPolicy(name, kind string, status metav1.ConditionStatus, why string, words ...string) {
	limit := soon
	if kind == v1alpha1.ConditionClocksAgree {
		limit = measured
	}
	w.Eventually(fmt.Sprintf("condition %s of policy %s is %s, %s", kind, name, status, why), limit, func() error {
		p := &v1alpha1.LeadershipPolicy{}
		must.Do(w.Hub.Get(w.T.Context(), types.NamespacedName{Namespace: w.Fleet, Name: name}, p))
		return conditionIs(p.Status.Conditions, kind, status, why, words...)
	})
}

func conditionIs(cs []metav1.Condition, kind string, status metav1.ConditionStatus, why string, words ...string) error {
	c := meta.FindStatusCondition(cs, kind)
	if c == nil || c.Status != status || c.Reason != why {
		return fmt.Errorf("%+v", c)
	}
	return contains(c.Message, words...)
}

// contains reports what a message for people fails to say, and what means nothing to
// them.
func contains(text string, words ...string) error {
	if strings.Contains(text, ".invalid") {
		return fmt.Errorf("%q names a placeholder", text)
	}
	for _, word := range words {
		if !strings.Contains(text, word) {
			return fmt.Errorf("%q does not say %q", text, word)
		}
	}
	return nil
}

// cluster reads a Cluster of the world.
func (w *world) cluster(name string) *clusterv1.Cluster {
	c := &clusterv1.Cluster{}
	w.Must(w.Hub.Get(w.T.Context(), types.NamespacedName{Namespace: w.Fleet, Name: name}, c))
	return c
}

// editCluster changes a Cluster.
func (w *world) editCluster(name string, edit func(*clusterv1.Cluster)) {
	harness.Edit(w.T, w.Hub, &clusterv1.Cluster{ObjectMeta: w.inFleet(name)}, edit)
}

// inFleet is the metadata of an object of the fleet.
func (w *world) inFleet(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: w.Fleet, Name: name}
}

// addCluster makes a Cluster and, unless it is nil, its kubeconfig Secret.
func (w *world) addCluster(name, priority string, kubeconfig []byte) {
	if kubeconfig != nil {
		w.Must(w.Servers.SetKubeconfig(w.T.Context(), w.Fleet, name, kubeconfig))
	}
	w.Must(w.Hub.Create(w.T.Context(), &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.Fleet, Name: name, Labels: map[string]string{v1alpha1.PriorityLabel: priority},
		},
		Spec: clusterv1.ClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "127.0.0.1", Port: 6443}},
	}))
}

// noLease waits until a member has no Lease of a namespace.
func (w *world) noLease(member, namespace string, within time.Duration) {
	w.Eventually("no Lease of "+namespace+" in "+member, within, func() error {
		l, err := w.LeaseIn(member, namespace)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		return fmt.Errorf("there is one: %+v", l.Spec)
	})
}

// deletePolicy deletes a policy of the world.
func (w *world) deletePolicy(name string) {
	p := &v1alpha1.LeadershipPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.Fleet, Name: name}}
	w.Must(w.Hub.Delete(w.T.Context(), p))
}

// journal is what a reader in a leader's member saw of its Lease.
type journal struct {
	w      *world
	before *v1alpha1.NamespaceLeader
	watch  *harness.Watch[*coordinationv1.Lease]
}

// keeps begins to watch a namespace that must not be disturbed. Its check fails the
// test if in between the record or the Lease changed its leader or epoch, or the term
// lapsed.
func (w *world) keeps(leader, namespace string) *journal {
	w.T.Helper()
	before := musttest.Get(w.Record(namespace))(w.T)
	if before.Spec.Leader != leader || before.Spec.State != v1alpha1.StateLeading {
		w.T.Fatalf("%s does not lead %s: %+v", leader, namespace, before.Spec)
	}
	return &journal{w, before, w.watch(leader, namespace)}
}

// watch watches a member's Lease of a namespace until the test is over.
func (w *world) watch(member, namespace string) *harness.Watch[*coordinationv1.Lease] {
	watch := musttest.Get(harness.Observe(w.T.Context(), w.Members[member], &coordinationv1.LeaseList{},
		&coordinationv1.Lease{}, client.InNamespace(namespace),
		client.MatchingFields{metav1.ObjectNameField: v1alpha1.DefaultLeaseName}))(w.T)
	w.T.Cleanup(watch.Stop)
	return watch
}

// seen are the versions that differ in what a reader goes by. One that is gone is empty.
func (j *journal) seen() (all []lease.Content) {
	for _, s := range j.watch.Seen() {
		c, _ := wire.Read(s.Object)
		if s.Gone {
			c = lease.Content{}
		}
		n := len(all)
		if n == 0 || all[n-1].Holder != c.Holder || all[n-1].Epoch != c.Epoch || !all[n-1].RenewTime.Equal(c.RenewTime) {
			all = append(all, c)
		}
	}
	return all
}

// promised is D of the term.
func (j *journal) promised() time.Duration {
	return time.Duration(j.before.Spec.LeaseDurationSeconds) * time.Second
}

// outlive waits for so many renewals that D of the world's timings has passed. By then a leader that must go is
// replaced.
func (j *journal) outlive() {
	j.grow(int(j.w.duration()/j.w.renew()) + 1)
}

// grow waits for this many more renewals.
func (j *journal) grow(renewals int) {
	want := len(j.seen()) + renewals
	limit := 2*time.Duration(renewals+1)*j.w.renew() + j.promised() // check judges a single late one
	j.w.Eventually(fmt.Sprintf("%d renewals of %s", renewals, j.before.Name), limit, func() error {
		n := len(j.seen())
		return must.ErrorIf(n < want, "%d are missing", want-n)
	})
}

// check ends the watch after two more renewals and checks what was observed. One renewal may be late while the term
// goes on; most may not. It returns the longest time between two renewals.
func (j *journal) check() time.Duration {
	t := j.w.T
	t.Helper()
	j.grow(2)
	j.watch.Stop()
	j.w.unmoved(j.before)
	var gaps []time.Duration
	seen, was, name := j.seen(), j.before.Spec, j.before.Name
	for i, c := range seen {
		if c.Holder != was.Leader+"."+j.w.Fleet || c.Epoch != was.Epoch {
			t.Errorf("the Lease of %s in %s was %+v, want holder %s, epoch %d", name, was.Leader, c, was.Leader, was.Epoch)
		}
		if i > 0 {
			gaps = append(gaps, c.RenewTime.Sub(seen[i-1].RenewTime))
		}
	}
	slices.Sort(gaps)
	longest, middle := gaps[len(gaps)-1], gaps[(len(gaps)-1)/2]
	if longest >= j.promised() {
		t.Errorf("%s: %v between two renewals: the term of %v lapsed", name, longest, j.promised())
	}
	if middle >= 3*j.w.renew() {
		t.Errorf("%s: something holds up most renewals, one every %v is due: %v", name, j.w.renew(), gaps)
	}
	return longest
}

// follow begins to watch the Lease of a leader that will have to go. The function that
// it returns reports the latest stamp that was seen in this Lease with this holder.
func (w *world) follow(leader, namespace string) (last func() time.Time) {
	j := w.keeps(leader, namespace)
	return func() time.Time {
		j.watch.Stop()
		var latest time.Time
		for _, c := range j.seen() {
			if c.Holder == leader+"."+w.Fleet && c.RenewTime.After(latest) {
				latest = c.RenewTime
			}
		}
		return latest
	}
}

// handedOver waits until a namespace has another leader, and checks that its term came
// in order: in a higher epoch, and not before all that its predecessor was promised had
// passed.
func (w *world) handedOver(namespace, to string, epoch int64, last func() time.Time, members ...string) {
	w.T.Helper()
	after := w.Leads(to, namespace, w.lost(), members...)
	if after <= epoch {
		w.T.Errorf("epoch %d after %d", after, epoch)
	}
	r := musttest.Get(w.Record(namespace))(w.T)
	if r.Spec.Reason != reason.HandedOver {
		w.T.Errorf("reason %s, history %+v", r.Spec.Reason, r.Status.History)
	}
	bound := last().Add(w.term())
	if r.Spec.AcquireTime.Time.Before(bound) {
		w.T.Errorf("granted at %v, before the bound %v", r.Spec.AcquireTime, bound)
	}
	w.T.Logf("granted %v after the bound", r.Spec.AcquireTime.Sub(bound))
}

// unawaited makes an error of any answer that is not the awaited one.
func unawaited(err error) error {
	if err == nil {
		return errors.New("the request succeeded")
	}
	return err
}

// missedNone is check for a time in which no single renewal may be missed. The world has to be a patient one.
func (j *journal) missedNone() {
	j.w.T.Helper()
	if longest := j.check(); longest >= 2*j.w.renew() {
		j.w.T.Errorf("%s: %v between two renewals, one every %v is due", j.before.Name, longest, j.w.renew())
	}
}

// took runs a step and returns how long it took.
func took(step func()) time.Duration {
	begin := time.Now()
	step()
	return time.Since(begin)
}

// within fails the test if something took too long.
func within(t *testing.T, what string, d, limit time.Duration) {
	t.Helper()
	t.Logf("%s: %v (limit %v)", what, d.Round(time.Millisecond), limit)
	if d > limit {
		t.Errorf("%s took %v, more than %v", what, d, limit)
	}
}

// left waits until nothing of the hub is left in a member: no guard, no probe.
func (w *world) left(member string) {
	c := w.Members[member]
	w.Eventually("nothing of the hub is left in "+member, 20*time.Second, func() error {
		for name, o := range map[types.NamespacedName]client.Object{
			{Name: guardName}: &admissionv1.ValidatingAdmissionPolicy{},
			{Namespace: metav1.NamespaceSystem, Name: "leasecast-hub-probe"}: &coordinationv1.Lease{},
		} {
			if err := c.Get(w.T.Context(), name, o); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%T %s: %w", o, name, unawaited(err))
			}
		}
		err := c.Get(w.T.Context(), types.NamespacedName{Name: guardName}, &admissionv1.ValidatingAdmissionPolicyBinding{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("binding: %w", unawaited(err))
		}
		return nil
	})
}

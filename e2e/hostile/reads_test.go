package hostile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
)

const (
	// readsLast bounds how long the reads of the hub are spoilt, all together, until each got what it must. They are
	// spoilt for readsLeast at least.
	readsLast, readsLeast = 200 * time.Second, 150 * time.Second
	// roundLasts is how long a round goes on.
	roundLasts = 24 * time.Second
	// leaving and joining are how long the hostile member has to leave, and to join until its CronJobs are woken, and
	// editing how long the hub has to restore what it keeps there.
	leaving, joining, editing = 4 * time.Second, 10 * time.Second, 3 * time.Second
)

// The hostile member joins, is fenced, leads, wakes CronJobs and leaves. The test records what the hub reads.
// Then it does so again and again, and the worst answers of each of these reads are sent: see package worst.
func TestWhateverTheHubReadsIsBounded(t *testing.T) {
	s := shared
	s.restart(t)
	s.liveHonestly(t)
	spoiler, err := NewSpoiler(&s.reads)
	harness.Must(t, err)
	s.spoiler = spoiler
	t.Logf("the hub reads %v", s.reads.All())
	turn := 0
	for n, began := 1, time.Now(); n == 1 || *full && time.Since(began) < readsLast &&
		(time.Since(began) < readsLeast || len(spoiler.Missing()) > 0); n++ {
		name := fmt.Sprintf("worst answers %d", n)
		t.Run(name, func(t *testing.T) { s.spoil(t, name, &turn, *full && n%3 == 1) })
	}
	for _, r := range s.reads.All() { // also of those that were first sent while others were spoilt
		_, err := TypesOf(r)
		harness.Must(t, err)
	}
	if *full {
		for _, r := range spoiler.Missing() {
			t.Errorf("%v: it did not get its worst answer and an error within %v", r, readsLast)
		}
	}
}

// Reads are spoilt in groups, because what follows a spoilt one may not be sent.
const (
	whenLeaving, whenEdited = "delete", "update"
	// CronJobs are read when a term begins.
	whenWoken = "CronJobs"
)

// grouped returns the reads by their groups.
func grouped(reads []Read) map[string][]Read {
	groups := map[string][]Read{}
	for _, r := range reads {
		group := r.Verb
		switch {
		case r.Resource == "cronjobs":
			group = whenWoken
		case r.Verb == "get" && r.Group == admissionv1.GroupName:
			group = whenEdited // they are replaced by what was read
		case r.Verb == "patch":
			group = "create"
		case r.Verb == "list" && (r.Resource == "namespaces" || r.Resource == "leases"):
			group = "watch" // they are listed where their watch fails
		}
		groups[group] = append(groups[group], r)
	}
	return groups
}

// chosen returns the reads of a group that are spoilt: those that still miss an answer, so that what follows them is
// sent, and then all. Namespaces and Leases are listed where a watch fails.
func (s *testbed) chosen(group string) []Read {
	missing, all := grouped(s.spoiler.Missing())[group], grouped(s.reads.All())[group]
	if len(missing) == 0 || group == "watch" {
		return all
	}
	return missing
}

// groups are those that have their turns while the hostile member joins. What installs the rights is sent one by one.
var groups = []string{"create", "watch", "create", "list", "create", whenWoken, "get"}

// nextGroup is the group whose turn it is. Those that miss nothing are passed over while others do.
func (s *testbed) nextGroup(turn int) string {
	missing := grouped(s.spoiler.Missing())
	for i := range groups {
		if group := groups[(turn+i)%len(groups)]; len(missing[group]) > 0 {
			return group
		}
	}
	return groups[turn%len(groups)]
}

// liveHonestly has the hostile member leave and join, and returns when the hub has done for it all that it does.
func (s *testbed) liveHonestly(t *testing.T) {
	t.Helper()
	s.Eventually(t, patience, "the hostile member leads its own namespace, and its CronJob is woken",
		func(ctx context.Context) error {
			if _, err := s.Leading(ctx, far, bazaar, far); err != nil {
				return err
			}
			o := &batchv1.CronJob{}
			err := s.Members[far].Get(ctx, client.ObjectKey{Namespace: bazaar, Name: "bill"}, o)
			if err == nil && o.Status.LastScheduleTime == nil {
				err = errors.New("its status is empty")
			}
			return err
		})
	harness.Must(t, s.takePart(t.Context(), false))
	s.Eventually(t, patience, "the hub's role is removed", func(ctx context.Context) error {
		var roles rbacv1.ClusterRoleList
		hubs := client.MatchingLabels{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue}
		err := s.Members[far].List(ctx, &roles, hubs)
		if err == nil && len(roles.Items) > 0 {
			err = fmt.Errorf("%d roles are left", len(roles.Items))
		}
		return err
	})
	harness.Must(t, s.takePart(t.Context(), true))
	s.Eventually(t, patience, "the hostile member may lead again", func(ctx context.Context) error {
		return s.Eligible(ctx, shop, far)
	})
}

// hasLeft returns nil once the hub has removed all that it had in the hostile member. It removes the pin at the end.
func (s *testbed) hasLeft(ctx context.Context) error {
	o := &clusterv1.Cluster{}
	err := s.Hub.Get(ctx, client.ObjectKey{Namespace: harness.FleetNamespace, Name: far}, o)
	if err == nil && o.Annotations[v1alpha1.ClusterUIDAnnotation] != "" {
		err = errors.New("the Cluster has a pin")
	}
	return err
}

// takePart has the Cluster of the hostile member take part, or leave.
func (s *testbed) takePart(ctx context.Context, does bool) error {
	if does {
		return s.SetPriority(ctx, far, 10)
	}
	o := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: harness.FleetNamespace, Name: far}}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, fleet.PriorityLabel)
	return s.Hub.Patch(ctx, o, client.RawPatch("application/merge-patch+json", patch))
}

// deletePolicies deletes what the hub keeps in the hostile member, so that the hub makes it again.
func (s *testbed) deletePolicies(t *testing.T) {
	t.Helper()
	for _, kind := range []client.Object{
		&admissionv1.ValidatingAdmissionPolicy{},
		&admissionv1.ValidatingAdmissionPolicyBinding{},
	} {
		harness.Must(t, s.Members[far].DeleteAllOf(t.Context(), kind, client.HasLabels{v1alpha1.ManagedByLabel}))
	}
}

// editPolicies edits what the hub keeps in the hostile member, so that the hub restores it.
func (s *testbed) editPolicies(t *testing.T) {
	t.Helper()
	api, kept := s.Members[far], client.HasLabels{v1alpha1.ManagedByLabel}
	var policies admissionv1.ValidatingAdmissionPolicyList
	var bindings admissionv1.ValidatingAdmissionPolicyBindingList
	harness.Must(t, errors.Join(api.List(t.Context(), &policies, kept), api.List(t.Context(), &bindings, kept)))
	edit := func(o client.Object, spec string) {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":`+spec+`}`))
		harness.Must(t, client.IgnoreNotFound(api.Patch(t.Context(), o, patch)))
	}
	for i := range policies.Items {
		edit(&policies.Items[i], `{"failurePolicy":"Ignore"}`)
	}
	for i := range bindings.Items {
		edit(&bindings.Items[i], `{"validationActions":["Warn"]}`)
	}
}

// spoil plays a round: the hostile member leaves and joins, again and again, while reads are spoilt. At its end an
// honest leader may be lost besides.
func (s *testbed) spoil(t *testing.T, name string, turn *int, losesLeader bool) {
	leader, err := s.leader(t.Context())
	harness.Must(t, err)
	v, u := s.LookFor(t), s.watchUsage(t)
	before, _ := s.spoiler.Sent()
	s.spoiler.Choose(nil)
	s.front.Play(s.spoiler.Act)
	defer s.front.Play(nil)
	for began := time.Now(); time.Since(began) < roundLasts; *turn++ {
		s.cycle(t, s.nextGroup(*turn))
	}
	var f figures
	f.RenewalDelaySeconds, f.Broken = s.delays(v, leader)
	if losesLeader {
		f.FailoverOverFloorSeconds = s.loseLeader(t, leader).Seconds()
	}
	f.PeakRSSMiB, f.CPUCores = u.stop()
	f.Worst = map[string]int{}
	after, latest := s.spoiler.Sent()
	for r, n := range after {
		if n > before[r] {
			f.Worst[r] = n - before[r]
		}
	}
	s.note(t, name, f)
	for _, wrong := range f.judge(mostOverFloor) {
		t.Errorf("%s; the last one was %s, and these were spoilt: %v", wrong, latest, slices.Sorted(maps.Keys(f.Worst)))
	}
	s.recover(t)
}

// cycle has the hostile member leave and join, and edits what the hub keeps there. In each step reads are spoilt that
// are sent then: when it joins those of a group.
func (s *testbed) cycle(t *testing.T, group string) {
	t.Helper()
	s.spoiler.Choose(s.chosen(whenLeaving))
	harness.Must(t, s.takePart(t.Context(), false))
	misses := len(grouped(s.spoiler.Missing())[whenLeaving]) > 0
	_ = s.Await(t.Context(), leaving, "it has left", func(ctx context.Context) error { // it may not get that far
		if misses && len(grouped(s.spoiler.Missing())[whenLeaving]) == 0 {
			return nil
		}
		return s.hasLeft(ctx)
	})
	s.deletePolicies(t)
	bill := &batchv1.CronJob{}
	harness.Must(t, s.Members[far].Get(t.Context(), client.ObjectKey{Namespace: bazaar, Name: "bill"}, bill))
	asleep := bill.ResourceVersion
	s.spoiler.Choose(s.chosen(group))
	misses = len(grouped(s.spoiler.Missing())[group]) > 0
	harness.Must(t, s.takePart(t.Context(), true))
	_ = s.Await(t.Context(), joining, "it leads", func(ctx context.Context) error { // nor that far
		if misses && len(grouped(s.spoiler.Missing())[group]) == 0 {
			return nil // what this turn is for was sent
		}
		if _, err := s.Leading(ctx, far, bazaar, far); err != nil || group != whenWoken {
			return err
		}
		err := s.Members[far].Get(ctx, client.ObjectKeyFromObject(bill), bill)
		if err == nil && bill.ResourceVersion == asleep {
			err = errors.New("its CronJob sleeps")
		}
		return err
	})
	s.spoiler.Choose(s.chosen(whenEdited))
	s.editPolicies(t)
	_ = s.Await(t.Context(), editing, "they are read", func(context.Context) error {
		left := grouped(s.spoiler.Missing())[whenEdited]
		if len(left) > 0 {
			return fmt.Errorf("%v were not", left)
		}
		return nil
	})
}

// recover returns when both honest members may lead. Where a replica has ended, the replicas are replaced.
func (s *testbed) recover(t *testing.T) {
	t.Helper()
	err := s.Await(t.Context(), 5*time.Second, "the honest members may lead", func(ctx context.Context) error {
		for _, p := range s.Hubs()[len(s.Hubs())-2:] {
			if !p.Running() {
				return fmt.Errorf("%s has ended", p.Name())
			}
		}
		_, err := s.leader(ctx)
		return errors.Join(err, s.Eligible(ctx, shop, "east"), s.Eligible(ctx, shop, "west"))
	})
	if err != nil {
		t.Logf("the replicas are replaced: %v", err)
		s.restart(t)
	}
}

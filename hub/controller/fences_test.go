package controller

import (
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/decide/decidetest"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/explain"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/worker"
)

func TestWhichFencesAMemberMustHaveInForce(t *testing.T) {
	where := func(missing func(f guard.Fence, namespace string) bool) func(guard.Fence, string) error {
		return func(f guard.Fence, namespace string) error {
			if missing(f, namespace) {
				return guard.ErrNotEnforced
			}
			return nil
		}
	}
	missing := where(func(guard.Fence, string) bool { return true })
	elsewhere := where(func(_ guard.Fence, namespace string) bool { return namespace != "shop" })
	ofJobs := where(func(f guard.Fence, _ string) bool { return f.Schedules() != nil })
	ofWrites := where(func(f guard.Fence, _ string) bool { return f.Schedules() == nil })
	ofOthers := where(func(f guard.Fence, _ string) bool { return !f.Covers("shop") })
	fails := func(err error) func(guard.Fence, string) error { return func(guard.Fence, string) error { return err } }
	jobs, warns := &v1alpha1.Fencing{Schedules: &metav1.LabelSelector{}}, &v1alpha1.Fencing{
		Enforcement: v1alpha1.EnforcementWarn, Schedules: &metav1.LabelSelector{},
	}
	both := jobs.DeepCopy()
	both.Writes = []v1alpha1.WriteFence{{ObjectLabels: map[string]string{"role": "leader"}}}
	for name, test := range map[string]struct {
		fencing         *v1alpha1.Fencing
		stands          func(guard.Fence, string) error
		leader          string
		missed, byLease bool // of all fences, of those that go by the Lease
	}{
		"no fence":                           {nil, missing, "", false, false},
		"the fence is in force":              {jobs, nil, "", false, false},
		"the fence is missing":               {jobs, missing, "", true, true},
		"the fence is missing elsewhere":     {jobs, elsewhere, "", false, false},
		"the fence of schedules is missing":  {both, ofJobs, "", true, true},
		"the fence of writes is missing":     {both, ofWrites, "", true, false},
		"the fence of other namespaces is":   {both, ofOthers, "", false, false},
		"a fence that only warns is missing": {warns, missing, "", false, false},
		// An outage of the hub must not move a leader because its fences were not probed yet.
		"a stored fence of the leader":      {jobs, fails(worker.ErrStored), "east", false, false},
		"a stored fence of another cluster": {jobs, fails(worker.ErrStored), "west", true, true},
		"a fence that was not checked yet":  {jobs, fails(worker.ErrUnchecked), "east", true, true},
		"a fence that the leader lacks":     {jobs, missing, "east", true, true},
	} {
		c, _, _ := newTestHub(t)
		c.members.of[eastKey] = &memberState{worker: &fakeWorker{unfenced: test.stands}}
		v := shopView(election.Record{Leader: test.leader}, decide.Member{Member: fleet.Member{Key: eastKey}})
		o := fencing(test.fencing)
		o.Spec.Namespaces.Selector = &metav1.LabelSelector{}
		v.Policy = decide.ParsePolicy(o)
		completed(t, c, v)
		if m := v.Members[0]; (m.Unfenced != nil) != test.missed || (m.UnfencedByLease != nil) != test.byLease {
			t.Errorf("%s: it misses %v, by its Lease %v", name, m.Unfenced, m.UnfencedByLease)
		}
	}
}

// Rule 16: a cluster without the policy's namespace has no Lease, and may have holders of locks in other namespaces.
func TestLockIsRefusedByClustersWithoutThePolicysNamespace(t *testing.T) {
	there := &corev1.Namespace{}
	here := func(m *decide.Member) { m.Namespace = there }
	ending := func(m *decide.Member) {
		m.Namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}}}
	}
	for name, test := range map[string]struct {
		locks   *corev1.Namespace // the lock's namespace; nil: it does not exist
		unread  error             // instead
		change  func(west *decide.Member)
		fence   error // in west
		refused bool
	}{
		"west refuses the lock":                         {there, nil, nil, nil, true},
		"west may admit the lock":                       {there, nil, nil, guard.ErrNotEnforced, false},
		"west does not allow the fence":                 {there, nil, nil, guard.NotAllowedError{}, false},
		"the lock's namespace does not exist":           {nil, nil, nil, guard.NotAllowedError{}, true},
		"west's namespaces cannot be read":              {nil, errDisengaged, nil, guard.NotAllowedError{}, false},
		"only the policy's namespace exists":            {nil, nil, here, guard.NotAllowedError{}, false},
		"the policy's namespace is about to be deleted": {there, nil, ending, guard.ErrNotEnforced, false},
		"west is not reached, its cache is empty": {
			nil, nil, func(m *decide.Member) { m.Connected = false }, worker.ErrUnchecked, true,
		},
	} {
		c, f, _ := newTestHub(t)
		f.space, f.refuses = test.locks, test.unread
		c.members.of[eastKey] = &memberState{worker: &fakeWorker{}}
		c.members.of[westKey] = fencedBy(test.fence)
		west := measured("west", agrees)
		if west.Namespace = nil; test.change != nil {
			test.change(&west)
		}
		v := shopView(election.Record{}, measured("east", agrees), west)
		v.Members[0].Publisher, v.Members[1].Publisher = nil, nil
		v.Policy = decide.ParsePolicy(fencing(decidetest.Locks(simLock)))
		completed(t, c, v)
		since, refused := v.State.RefusedSince["stock/stock"]
		if refused != test.refused || !west.Connected && since != testStart.Boot {
			t.Errorf("%s: every cluster refuses the lock: %v, since %v; want %v", name, refused, since, test.refused)
		}
	}
}

// fencedBy is a member whose fences all have an error, or none.
func fencedBy(err error) *memberState {
	return &memberState{worker: &fakeWorker{unfenced: func(guard.Fence, string) error { return err }}}
}

// What one cluster has shown of a lock or an account counts, and each is named once.
func TestPolicyShowsTheTargetsOfItsFences(t *testing.T) {
	type accounts = map[v1alpha1.FencedServiceAccount]worker.AccountState
	own := v1alpha1.FencedServiceAccount{Name: "builder"}
	ci := v1alpha1.FencedServiceAccount{Namespace: "ci", Name: "builder"}
	o := fencing(decidetest.Locks(simLock))
	o.Spec.Fencing.Writes = []v1alpha1.WriteFence{{
		ServiceAccounts: []v1alpha1.FencedServiceAccount{ci, own, ci},
		Resources:       []v1alpha1.FencedResources{{Names: []string{"pods"}}},
	}}
	c := New(Options{HubID: "this"})
	c.members.of[eastKey] = &memberState{worker: &fakeWorker{
		accounts: accounts{own: worker.AccountMissing, ci: worker.AccountMissing},
	}}
	c.members.of[westKey] = &memberState{worker: &fakeWorker{
		lock: worker.LockIdle, accounts: accounts{ci: worker.AccountFound},
	}}
	members := []decide.Member{{}, {Member: fleet.Member{Key: eastKey}}, {Member: fleet.Member{Key: westKey}}}
	locks := []explain.LockFinding{{Lock: "stock/stock", Member: "west", State: worker.LockIdle}}
	if got := c.statuses.findLocks(o, members); !slices.Equal(got, locks) {
		t.Errorf("locks %+v, want %+v", got, locks)
	}
	found := []explain.AccountFinding{
		{Account: "ci/builder", Exists: true, MissingIn: []string{"east"}},
		{Account: "builder", MissingIn: []string{"east"}},
	}
	if got := c.statuses.findAccounts(o, members); !reflect.DeepEqual(got, found) {
		t.Errorf("accounts %+v, want %+v", got, found)
	}
}

// One command allows what two fences ask for.
func TestPolicyShowsEachNamespaceThatDeniesItsFencesOnce(t *testing.T) {
	c, like := New(Options{HubID: "this"}), simLock
	like.Name = "like"
	c.members.of[eastKey] = fencedBy(guard.NotAllowedError{Namespaces: []string{"stock"}})
	fences := guard.Fences("this", fencing(decidetest.Locks(simLock, like)), nil)
	got := c.statuses.missingFence(decide.Member{Member: fleet.Member{Key: eastKey}}, fences)
	if len(fences) != 2 || !slices.Equal(guard.DeniedIn(got), []string{"stock"}) {
		t.Errorf("of %d fences: %v", len(fences), got)
	}
}

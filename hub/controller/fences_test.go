package controller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/decide/decidetest"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/explain"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/health"
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
	ofOthers := where(func(f guard.Fence, _ string) bool { return !f.Selects("shop", nil) })
	fails := func(err error) func(guard.Fence, string) error { return func(guard.Fence, string) error { return err } }
	jobs, warns := &v1alpha1.Fencing{Schedules: &metav1.LabelSelector{}}, &v1alpha1.Fencing{
		Enforcement: v1alpha1.EnforcementWarn, Schedules: &metav1.LabelSelector{},
	}
	both := jobs.DeepCopy()
	both.Writes = []v1alpha1.WriteFence{{ObjectLabels: map[string]string{"role": "leader"}}}
	lock, sharesLocks := decidetest.Locks(simLock), func(p *decide.Policy) { p.Election.Locks = nil }
	neverValid := func(p *decide.Policy) { p.Unknown = true }
	for name, test := range map[string]struct {
		fencing         *v1alpha1.Fencing
		stands          func(guard.Fence, string) error
		leader          string
		missed, byLease bool // of all fences, of those that go by the Lease
		change          func(*decide.Policy)
	}{
		"no fence":                           {nil, missing, "", false, false, nil},
		"the fence is missing elsewhere":     {jobs, elsewhere, "", false, false, nil},
		"the fence of schedules is missing":  {both, ofJobs, "", true, true, nil},
		"the fence of writes is missing":     {both, ofWrites, "", true, false, nil},
		"the fence of other namespaces is":   {both, ofOthers, "", false, false, nil},
		"a fence that only warns is missing": {warns, missing, "", false, false, nil},
		// An outage of the hub must not move a leader because its fences were not probed yet.
		"a stored fence of the leader":      {jobs, fails(guard.ErrStored), "east", false, false, nil},
		"a stored fence of another cluster": {jobs, fails(guard.ErrStored), "west", true, true, nil},
		"a fence that was not checked yet":  {jobs, fails(guard.ErrUnchecked), "east", true, true, nil},
		"the fence of a lock is missing":    {lock, missing, "", true, true, nil},
		"an older policy fences the lock":   {lock, missing, "", false, false, sharesLocks},
		"the policy was never valid":        {jobs, missing, "", false, false, neverValid},
	} {
		c, _, _ := newTestHub(t)
		c.members.of[eastKey] = &memberState{worker: &fakeWorker{unfenced: test.stands}}
		v := shopView(election.Record{Leader: test.leader}, decide.Member{Member: fleet.Member{Key: eastKey}})
		o := fencing(test.fencing)
		o.Spec.Namespaces.Selector = &metav1.LabelSelector{}
		if v.Policy = decide.ParsePolicy(o); test.change != nil {
			test.change(v.Policy)
		}
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
	for name, test := range map[string]struct {
		locks   *corev1.Namespace // the lock's namespace; nil: it does not exist
		unread  error             // instead
		change  func(west *decide.Member)
		fence   error // in west
		refused bool
	}{
		"west refuses the lock":               {there, nil, nil, nil, true},
		"west does not allow the fence":       {there, nil, nil, guard.NotAllowedError{}, false},
		"the lock's namespace does not exist": {nil, nil, nil, guard.NotAllowedError{}, true},
		"west's namespaces cannot be read":    {nil, errDisengaged, nil, guard.NotAllowedError{}, false},
		"only the policy's namespace exists":  {nil, nil, here, guard.NotAllowedError{}, false},
		"west is not reached, its cache is empty": {
			nil, nil, func(m *decide.Member) { m.Connected = false }, guard.ErrUnchecked, true,
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

// A tenure has a minute to check the fences of clusters that answer. A lock is closed until the record opens it.
func TestPolicyShowsItsFences(t *testing.T) {
	like := simLock
	like.Name = "like"
	jobs, locks := &v1alpha1.Fencing{Schedules: &metav1.LabelSelector{}}, decidetest.Locks(simLock, like)
	denied := guard.NotAllowedError{Namespaces: []string{"stock"}}
	for name, test := range map[string]struct {
		fencing *v1alpha1.Fencing
		missing error
		after   time.Duration // from the start of the tenure
		want    string        // as a prefix
	}{
		"a fence is not checked yet":         {jobs, guard.ErrUnchecked, time.Minute - 1, "Unknown FenceUnchecked east ("},
		"a fence is not checked in a minute": {jobs, guard.ErrUnchecked, time.Minute, "False Unfenced east ("},
		"two fences are not allowed": {locks, denied, time.Minute, "False Unfenced east (an administrator of the cluster " +
			"has to allow what is fenced outside the policy's namespaces: kubectl label namespace stock " +
			"leasecast.dev/fencing=allowed)"},
		"a closed lock": {locks, nil, time.Minute, "True InForce in force in all 1 clusters; refused in every cluster " +
			"until each earlier holder must have stopped: stock/like; a change of leader takes 4s more, for the lock"},
	} {
		c, _, api := newTestHub(t)
		changeStored(t, api, recordOf("fleet", "shop"), func(o *v1alpha1.NamespaceLeader) {
			o.Spec.OpenLocks = []string{"stock/stock"}
		})
		c.members.of[eastKey] = fencedBy(test.missing)
		c.Clock = fixedClock(lease.Reading{Wall: testStart.Wall, Boot: testStart.Boot + test.after})
		o, m := fencing(test.fencing), fleet.Member{Key: eastKey, Connected: true}
		p, answers := decide.ParsePolicy(o), health.Verdict{State: health.Healthy}
		again := c.statuses.noteFences(t.Context(), explain.Fences{Policy: p, Wanted: p.FencesBut(c.HubID, nil),
			Members: []decide.Member{{Member: m, Verdict: answers}}}, o)
		got := inShort(o.Status.Conditions, v1alpha1.ConditionFencesInForce)
		if !strings.HasPrefix(got, test.want) || again != time.Minute-test.after {
			t.Errorf("%s: %q, again in %v; want %q", name, got, again, test.want)
		}
	}
}

// A lock counts where its holder was seen.
func TestPolicyShowsTheTargetsOfItsFences(t *testing.T) {
	lock := decidetest.Locks(simLock)
	writes := &v1alpha1.Fencing{Writes: []v1alpha1.WriteFence{{
		ServiceAccounts: []v1alpha1.FencedServiceAccount{{Name: "builder"}},
		Resources:       []v1alpha1.FencedResources{{Names: []string{"pods"}}},
	}}}
	warns := lock.DeepCopy()
	warns.Enforcement = v1alpha1.EnforcementWarn
	missing := fakeWorker{lock: worker.LockMissing}
	for name, test := range map[string]struct {
		fencing    *v1alpha1.Fencing
		east, west fakeWorker
		want       string // as a part
	}{
		"no fence":               {nil, fakeWorker{}, fakeWorker{}, "nothing"},
		"no lock":                {writes, fakeWorker{}, fakeWorker{}, "nothing"},
		"a lock is held in east": {lock, fakeWorker{lock: worker.LockHeld}, fakeWorker{}, "True TargetsFound"},
		"a lock of a warning":    {warns, fakeWorker{}, missing, "there is no Lease stock/stock in west, which leads"},
		"a lock was not seen":    {lock, fakeWorker{}, fakeWorker{}, "Unknown LockUnseen "},
	} {
		c := New(Options{HubID: "this"})
		c.members.of[eastKey], c.members.of[westKey] = &memberState{worker: &test.east}, &memberState{worker: &test.west}
		o := fencing(test.fencing)
		o.Status.Conditions = []metav1.Condition{
			{Type: v1alpha1.ConditionFenceTargetsFound, Status: metav1.ConditionUnknown},
		}
		members := []decide.Member{{}, {Member: fleet.Member{Key: eastKey}}, {Member: fleet.Member{Key: westKey}}}
		cond, applies := explain.TargetsFound(c.statuses.findLocks(o, members))
		setCondition(o, cond, applies)
		if got := inShort(o.Status.Conditions, v1alpha1.ConditionFenceTargetsFound); !strings.Contains(got, test.want) ||
			applies && o.Status.Conditions[0].ObservedGeneration != 7 {
			t.Errorf("%s: %q, want %q (%+v)", name, got, test.want, o.Status.Conditions)
		}
	}
}

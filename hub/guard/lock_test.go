package guard_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard"
)

const (
	noParameter = "no params found"
	lockNotOpen = "this lock is not open yet: the hub opens it when every earlier holder must have stopped"
	hubIsAhead  = "the clock of the hub that has written the Lease of this namespace is ahead"
)

// lockIn fences the lock "stock" of a namespace.
func lockIn(namespace string) v1alpha1.Fencing {
	return v1alpha1.Fencing{LeaderElectionLocks: []v1alpha1.LockFence{{
		Namespace: namespace, Name: "stock", LeaseDurationSeconds: 15, RenewDeadlineSeconds: 10, RetryPeriodSeconds: 2,
	}}}
}

// ticket is a lock as an elector writes it.
func ticket(name, holder string, l *coordinationv1.Lease) *coordinationv1.Lease {
	l.Name = name
	l.Spec.HolderIdentity = &holder
	l.Spec.LeaseDurationSeconds = ptr.To[int32](15)
	l.Spec.RenewTime = ptr.To(metav1.NowMicro())
	return l
}

// takes creates a lock, or renews it.
func takes(ctx context.Context, c kubernetes.Interface, namespace, name, holder string) error {
	leases := c.CoordinationV1().Leases(namespace)
	have, err := leases.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		_, err = leases.Create(ctx, ticket(name, holder, &coordinationv1.Lease{}), metav1.CreateOptions{})
		return err
	}
	_, err = leases.Update(ctx, ticket(name, holder, have), metav1.UpdateOptions{})
	return err
}

// A stock elector takes and renews its lock where its cluster leads the namespace of the policy, and in its term only.
// The lock may be in another namespace.
func TestWhatALockFenceCatches(t *testing.T) {
	parallel(t)
	admin := administrator(t)
	now := time.Now()
	for name, test := range map[string]struct {
		holder    string
		renewed   time.Time
		lasts     time.Duration
		bare      bool // there is no Lease
		open      string
		want      string
		release   string // the answer to a release
		forbidden bool   // nobody has allowed the fence in the namespace of the lock
	}{
		"its cluster leads, and the lock is open":                 {holder: "east.fleet", open: "NAME", renewed: now, lasts: time.Hour},
		"its cluster leads, and the lock is one of several":       {holder: "east.fleet", open: "aaaaaaaaaaaa,NAME,ffffffffffff", renewed: now, lasts: time.Hour},
		"its cluster leads, and no lock is listed":                {holder: "east.fleet", renewed: now, lasts: time.Hour, want: lockNotOpen},
		"its cluster leads, and others are open":                  {holder: "east.fleet", open: "aaaaaaaaaaaa,ffffffffffff", renewed: now, lasts: time.Hour, want: lockNotOpen},
		"its cluster leads, and a part of its name is open":       {holder: "east.fleet", open: "NAMEff", renewed: now, lasts: time.Hour, want: lockNotOpen},
		"another cluster leads":                                   {holder: "west.fleet", open: "NAME", renewed: now, lasts: time.Hour, want: notLeading},
		"nobody leads":                                            {holder: "", open: "NAME", renewed: now, lasts: time.Hour, want: notLeading},
		"its term is over":                                        {holder: "east.fleet", open: "NAME", renewed: now.Add(-time.Minute), lasts: time.Second, want: termIsOver},
		"the hub's clock is ahead":                                {holder: "east.fleet", open: "NAME", renewed: now.Add(time.Hour), lasts: time.Minute, want: hubIsAhead},
		"there is no Lease":                                       {bare: true, want: noParameter, release: noParameter},
		"another cluster leads, and nobody has allowed the fence": {holder: "west.fleet", renewed: now, lasts: time.Hour, forbidden: true},
		"there is no Lease, and nobody has allowed the fence":     {bare: true, forbidden: true},
	} {
		t.Run(name, func(t *testing.T) {
			ns, locks := newNamespace(t), newNamespace(t)
			labelFencing(t, locks, v1alpha1.FencingAllowed)
			if err := takes(t.Context(), admin, locks, "stock", "before"); err != nil {
				t.Fatal(err)
			}
			f := fenceOf(t, asks("locks", lockIn(locks), ns))
			if !test.bare {
				leads(t, ns, test.holder, test.renewed, test.lasts, strings.ReplaceAll(test.open, "NAME", idOf(f)))
			}
			keeps(t, f, map[string]bool{ns: !test.bare})
			if test.forbidden {
				labelFencing(t, locks, "no")
			}
			eventually(t, "the Lease is known", func(ctx context.Context) error { return answered(takes(ctx, admin, locks, "stock", "me"), test.want) })
			mustBeAnswered(t, takes(t.Context(), admin, locks, "stock", "me"), test.want)
			mustBeAnswered(t, takes(t.Context(), admin, locks, "stock", ""), test.release)
			mustBeAnswered(t, takes(t.Context(), admin, locks, "another", "me"), "")
			mustBeAnswered(t, takes(t.Context(), admin, ns, "stock", "me"), "") // the same lock elsewhere
			if err := admin.CoordinationV1().Leases(locks).Delete(t.Context(), "stock", metav1.DeleteOptions{}); err != nil {
				t.Errorf("a lock can be deleted: %v", err)
			}
			mustBeAnswered(t, takes(t.Context(), admin, locks, "stock", "me"), test.want)
		})
	}
}

// A program that once took all notes off its lock cannot renew it: the API server does not tell when that was.
func TestALockWithoutNotesIsNotRenewed(t *testing.T) {
	parallel(t)
	admin := administrator(t)
	ns, locks := newNamespace(t), newNamespace(t)
	labelFencing(t, locks, v1alpha1.FencingAllowed)
	f := fenceOf(t, asks("locks", lockIn(locks), ns))
	leads(t, ns, "east.fleet", time.Now(), time.Hour, idOf(f))
	keeps(t, f, map[string]bool{ns: true})
	eventually(t, "the Lease is known", func(ctx context.Context) error { return takes(ctx, admin, locks, "stock", "me") })
	have, err := admin.CoordinationV1().Leases(locks).Get(t.Context(), "stock", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	have.ManagedFields = []metav1.ManagedFieldsEntry{{}}
	_, err = admin.CoordinationV1().Leases(locks).Update(t.Context(), ticket("stock", "me", have), metav1.UpdateOptions{})
	mustBeAnswered(t, err, "this lock has lost its managedFields, so nobody knows when it is renewed: delete this Lease")
	if err := admin.CoordinationV1().Leases(locks).Delete(t.Context(), "stock", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	mustBeAnswered(t, takes(t.Context(), admin, locks, "stock", "me"), "")
}

// A policy fences a lock in its own namespace without anybody's leave, and in kube-system as in any other one.
func TestWhereALockFenceNeedsTheLabel(t *testing.T) {
	parallel(t)
	client := administrator(t)
	for name, test := range map[string]struct {
		namespace string // of the lock; "": the policy's own
		label     string
		settled   bool
	}{
		"its own namespace":                {"", "", true},
		"kube-system, unlabelled":          {metav1.NamespaceSystem, "", false},
		"kube-system, with another value":  {metav1.NamespaceSystem, "yes", false},
		"kube-system, and that is allowed": {metav1.NamespaceSystem, v1alpha1.FencingAllowed, true},
	} {
		t.Run(name, func(t *testing.T) {
			ns := newNamespace(t)
			at := cmp.Or(test.namespace, ns)
			labelFencing(t, at, test.label)
			t.Cleanup(func() { labelFencing(t, at, "") })
			leads(t, ns, "west.fleet", time.Now(), time.Hour, "")
			f, active := fenceOf(t, asks("locks", lockIn(at), ns)), map[string]bool{ns: true}
			if test.settled {
				keeps(t, f, active)
				mustBeAnswered(t, takes(t.Context(), client, at, "stock", "me"), notLeading)
				return
			}
			// A fence that is in force by now shows that this one would be.
			hubOf(t).wants(f, active)
			keeps(t, fenceOf(t, asks("own", lockIn(ns), ns)), active)
			if err := hubOf(t).Unfenced(f, ns); !errors.Is(err, guard.ErrNotEnforced) {
				t.Errorf("missing is %v", err)
			}
			mustBeAnswered(t, takes(t.Context(), client, at, "stock", "me"), "")
			if err := client.CoordinationV1().Leases(at).Delete(t.Context(), "stock", metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// Where the policy's namespace does not exist no Lease leads, so nobody takes a lock elsewhere. The hub sees that.
func TestALockIsRefusedWhereThePolicyHasNoNamespace(t *testing.T) {
	parallel(t)
	client, locks := administrator(t), newNamespace(t)
	labelFencing(t, locks, v1alpha1.FencingAllowed)
	f := fenceOf(t, asks("locks", lockIn(locks), "nowhere"))
	keeps(t, f, nil)
	mustBeAnswered(t, takes(t.Context(), client, locks, "stock", "me"), noParameter)
}

// labelFencing labels a namespace, as an administrator does who allows fences from outside there. It takes an empty label off.
func labelFencing(t *testing.T, namespace, label string) {
	t.Helper()
	value := "null"
	if label != "" {
		value = strconv.Quote(label)
	}
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, v1alpha1.FencingLabel, value)
	if _, err := administrator(t).CoreV1().Namespaces().Patch(context.WithoutCancel(t.Context()), namespace, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// leads writes the managed Lease of a namespace, with an ε of a second, where these locks are open.
func leads(t *testing.T, namespace, holder string, renewed time.Time, lasts time.Duration, open string) {
	t.Helper()
	writeLease(t, namespace, lease.Term{Holder: holder, Epoch: 1000, AcquireTime: renewed, RenewTime: renewed, Duration: lasts}, time.Second, open)
}

// idOf is how the lock of a fence is listed.
func idOf(f guard.Fence) string {
	lock, _ := f.Lock()
	return lock.ID()
}

// A warning refuses nothing. So the hub waits for no earlier holder and opens no lock, and says nothing about that.
func TestAFenceThatWarnsDoesNotAskWhetherALockIsOpen(t *testing.T) {
	client, locks := administrator(t), newNamespace(t)
	warning := lockIn(locks)
	warning.Enforcement = v1alpha1.EnforcementWarn
	for mode, fencing := range map[string]v1alpha1.Fencing{lockNotOpen: lockIn(locks), "": warning} {
		f := fenceOf(t, asks("locks", fencing, "shop"))
		hubOf(t).wants(f, nil)
		hubOf(t).turn(t.Context())
		p, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), f.Name(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if last := p.Spec.Validations[len(p.Spec.Validations)-1].Message; (last == lockNotOpen) != (mode == lockNotOpen) {
			t.Errorf("the last validation says %q", last)
		}
	}
}

// answered is an error unless that is the answer.
func answered(err error, want string) error {
	if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
		return fmt.Errorf("answered %w", err)
	}
	return nil
}

// A policy asks for one fence a lock, each of its own version.
func TestEachLockHasAFenceOfItsOwn(t *testing.T) {
	two := lockIn("a")
	two.LeaderElectionLocks = append(two.LeaderElectionLocks, lockIn("b").LeaderElectionLocks...)
	fences := guard.Fences("hub", asks("locks", two, "shop"), nil)
	if len(fences) != 2 || fences[0].Name() == fences[1].Name() || len(fences[0].Names()) != 1 {
		t.Errorf("the fences are %v", fences)
	}
}

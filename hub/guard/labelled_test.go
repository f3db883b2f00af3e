package guard_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// labelledWrites fences ConfigMaps with a label, whoever writes them.
var labelledWrites = v1alpha1.Fencing{Writes: []v1alpha1.WriteFence{{
	ObjectLabels: map[string]string{"led": "shop"}, Resources: []v1alpha1.FencedResources{{Names: []string{"configmaps"}}},
}}}

func aLabelledConfigMap(value string) func(context.Context, kubernetes.Interface, string, string) error {
	return func(ctx context.Context, c kubernetes.Interface, ns, name string) error {
		m := configMap(name)
		m.Labels = map[string]string{"led": value}
		_, err := c.CoreV1().ConfigMaps(ns).Create(ctx, m, metav1.CreateOptions{})
		return err
	}
}

// Each row is done to a namespace that another cluster leads, and to one that this one leads.
func TestWhatAFenceOfObjectsCatches(t *testing.T) {
	parallel(t)
	admin := administrator(t)
	led, followed := newNamespace(t), newNamespace(t)
	relabel := func(value string) func(context.Context, kubernetes.Interface, string, string) error {
		return patched("application/merge-patch+json", `{"metadata":{"labels":{"led":`+value+`}}}`)
	}
	deletes := func(ctx context.Context, c kubernetes.Interface, ns, name string) error {
		return c.CoreV1().ConfigMaps(ns).Delete(ctx, name, metav1.DeleteOptions{})
	}
	rows := map[string]struct {
		write
		fenced bool
		taken  bool // so not even the leader may
	}{
		"create":                          {write{do: aLabelledConfigMap("shop")}, true, false},
		"create with another value":       {write{do: aLabelledConfigMap("stock")}, false, false},
		"create without a label":          {write{do: aConfigMap}, false, false},
		"patch":                           {write{prepare: aLabelledConfigMap("shop"), do: patched("application/merge-patch+json", `{"data":{"a":"2"}}`)}, true, false},
		"patch that takes the label off":  {write{prepare: aLabelledConfigMap("shop"), do: relabel("null")}, true, true},
		"patch that puts it on":           {write{prepare: aConfigMap, do: relabel(`"shop"`)}, true, false},
		"patch that gives another value":  {write{prepare: aLabelledConfigMap("shop"), do: relabel(`"stock"`)}, true, false},
		"patch of what has another value": {write{prepare: aLabelledConfigMap("stock"), do: relabel("null")}, false, false},
		"delete":                          {write{prepare: aLabelledConfigMap("shop"), do: deletes}, true, false},
		"delete of what has no label":     {write{prepare: aConfigMap, do: deletes}, false, false},
	}
	writers := map[string]struct {
		in     func(ns string) kubernetes.Interface
		exempt bool
	}{
		"an account of the namespace": {func(ns string) kubernetes.Interface { return inNamespace(t, ns, "some") }, false},
		"an administrator":            {func(string) kubernetes.Interface { return admin }, false},
		"a controller of the cluster": {func(string) kubernetes.Interface { return inNamespace(t, "kube-system", "namespace-controller") }, true},
	}
	objects := map[string]string{}
	for who := range writers {
		for what, w := range rows {
			name := fmt.Sprintf("object-%d", len(objects))
			objects[who+what] = name
			for _, ns := range []string{led, followed} {
				if w.prepare == nil {
					continue
				}
				if err := w.prepare(t.Context(), admin, ns, name); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	now := time.Now()
	says(t, led, "east.fleet", now, now, time.Hour)
	says(t, followed, "west.fleet", now, now, time.Hour)
	keeps(t, fenceOf(t, asks("objects", labelledWrites, led, followed)), map[string]bool{led: true, followed: true})
	eventually(t, "the Leases are known", func(ctx context.Context) error {
		if err := aLabelledConfigMap("shop")(ctx, admin, led, fmt.Sprintf("first-%d", time.Now().UnixNano())); err != nil {
			return err
		}
		if err := aLabelledConfigMap("shop")(ctx, admin, followed, fmt.Sprintf("first-%d", time.Now().UnixNano())); err == nil {
			return fmt.Errorf("let through")
		}
		return nil
	})
	for who, writer := range writers {
		for ns, leads := range map[string]bool{led: true, followed: false} {
			client := writer.in(ns)
			for what, w := range rows {
				t.Run(fmt.Sprintf("%s/leads %v/%s", who, leads, what), func(t *testing.T) {
					want := ""
					switch {
					case !w.fenced || writer.exempt:
					case !leads:
						want = notLeading
					case w.taken:
						want = "but not be taken off"
					}
					mustBeAnswered(t, w.do(t.Context(), client, ns, objects[who+what]), want)
				})
			}
		}
	}
}

// After the term, while the hub is silent, nobody gets an object out of the fence by steps that carry no time.
func TestALabelIsNotTakenOffAfterTheTerm(t *testing.T) {
	parallel(t)
	admin := administrator(t)
	ns, led := newNamespace(t), newNamespace(t)
	if err := aLabelledConfigMap("shop")(t.Context(), admin, ns, "a"); err != nil {
		t.Fatal(err)
	}
	says(t, ns, "east.fleet", time.Now(), time.Now().Add(time.Second), time.Second)
	says(t, led, "east.fleet", time.Now(), time.Now(), time.Hour)
	keeps(t, fenceOf(t, asks("objects", labelledWrites, ns, led)), map[string]bool{ns: true, led: true})
	eventually(t, "the wall lets both out", func(ctx context.Context) error {
		return aLabelledConfigMap("shop")(ctx, admin, led, fmt.Sprintf("first-%d", time.Now().UnixNano()))
	})
	eventually(t, "the term is over", func(ctx context.Context) error {
		write := fmt.Sprintf(`{"data":{"a":"%d"}}`, time.Now().UnixNano()) // one that changes nothing is let through
		if err := patched("application/merge-patch+json", write)(ctx, admin, ns, "a"); err == nil || !strings.Contains(err.Error(), termIsOver) {
			return fmt.Errorf("answered %w", err)
		}
		return nil
	})
	for value, want := range map[string]string{"null": "but not be taken off", `"stock"`: termIsOver} {
		mustBeAnswered(t, patched("application/merge-patch+json", `{"metadata":{"labels":{"led":`+value+`}}}`)(t.Context(), admin, ns, "a"), want)
	}
}

// A namespace that goes away is led by nobody any more. Whoever owns a finalizer must be able to take it off, while the
// hub has not yet taken the fence out of there.
func TestANamespaceThatGoesAwayLosesWhatIsFenced(t *testing.T) {
	parallel(t)
	admin := administrator(t)
	for name, test := range map[string]struct {
		hasLease bool
		before   string // the answer while it does not go away
	}{"where no Lease ever was": {false, noLeader}, "where another cluster leads": {true, notLeading}} {
		t.Run(name, func(t *testing.T) {
			ns := newNamespace(t)
			m := configMap("a")
			m.Labels, m.Finalizers = map[string]string{"led": "shop"}, []string{"example.com/held"}
			if _, err := admin.CoreV1().ConfigMaps(ns).Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			if test.hasLease {
				says(t, ns, "west.fleet", time.Now(), time.Now(), time.Hour)
			}
			keeps(t, fenceOf(t, asks("objects", labelledWrites, ns)), map[string]bool{ns: test.hasLease})
			held := patched("application/merge-patch+json", `{"metadata":{"finalizers":null}}`)
			eventually(t, "it is fenced", func(ctx context.Context) error { return answered(held(ctx, admin, ns, "a"), test.before) })
			if err := admin.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the finalizer is taken off", func(ctx context.Context) error { return held(ctx, admin, ns, "a") })
			err := aLabelledConfigMap("shop")(t.Context(), admin, ns, "b")
			if err == nil || !strings.Contains(err.Error(), "because it is being terminated") && !strings.Contains(err.Error(), test.before) {
				t.Errorf("something new is answered %v", err)
			}
		})
	}
}

// Without its Lease a namespace has all that is fenced refused, to everybody. But the hub has to write the Lease again, and
// other programs go on with their elections.
func TestALeaseThatIsDeletedIsWrittenAgain(t *testing.T) {
	parallel(t)
	admin := administrator(t)
	for name, fencing := range map[string]v1alpha1.Fencing{
		"writes": labelledWrites, "schedules": {Schedules: &metav1.LabelSelector{MatchLabels: map[string]string{"run": "once"}}},
	} {
		t.Run(name, func(t *testing.T) {
			ns := newNamespace(t)
			says(t, ns, "east.fleet", time.Now(), time.Now(), time.Hour)
			f := fenceOf(t, asks(name, fencing, ns))
			keeps(t, f, map[string]bool{ns: true})
			leases := admin.CoordinationV1().Leases(ns)
			if err := leases.Delete(t.Context(), v1alpha1.DefaultLeaseName, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if name == "writes" {
				eventually(t, "the Lease is missed", func(ctx context.Context) error {
					if err := aConfigMap(ctx, admin, ns, "a"); err == nil || !strings.Contains(err.Error(), "no params found") {
						return fmt.Errorf("answered %w", err)
					}
					return nil
				})
			}
			other := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "election"}}
			if _, err := leases.Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
				t.Errorf("an election: %v", err)
			}
			keeps(t, f, map[string]bool{ns: false})
			keeps(t, fenceOf(t, asks(name+"-more", fencing, ns)), map[string]bool{ns: true}) // its gate is seen to be in force, too
			says(t, ns, "east.fleet", time.Now(), time.Now(), time.Hour)
		})
	}
}

// Nobody ever leads a namespace of the cluster itself, so nothing there may wait for a leader.
func TestNamespacesOfTheClusterAreNotFenced(t *testing.T) {
	standing(t)
	admin := administrator(t)
	ns := "kube-" + newNamespace(t)
	if _, err := admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := admin.CoreV1().Namespaces().Delete(context.Background(), ns, metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete namespace %s: %v", ns, err)
		}
	})
	o := asks("all", labelledWrites)
	o.Spec.Namespaces.Selector = &metav1.LabelSelector{}
	f := fenceOf(t, o)
	other := newNamespace(t)
	keeps(t, f, map[string]bool{other: false})
	mustBeAnswered(t, aLabelledConfigMap("shop")(t.Context(), admin, other, "a"), noLeader)
	mustBeAnswered(t, aLabelledConfigMap("shop")(t.Context(), admin, ns, "a"), "")
	if f.Selects(ns, nil) {
		t.Error("the fence counts a namespace of the cluster")
	}
	// It catches the namespaces of the other tests, too.
	hubOf(t).drops(t)
	eventually(t, "the fence is gone", func(ctx context.Context) error { return aLabelledConfigMap("shop")(ctx, admin, other, "a") })
}

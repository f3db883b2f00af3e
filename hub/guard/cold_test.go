package guard_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// answers counts how the writes of a fenced account were answered.
type answers struct {
	mu                           sync.Mutex
	through, refused, unanswered int
}

func (a *answers) note(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err == nil:
		a.through++
	case strings.Contains(err.Error(), deny):
		a.refused++
	default:
		a.unanswered++
	}
}

func (a *answers) seen() (through, refused, unanswered int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.through, a.refused, a.unanswered
}

// writesOn has an account write all the time, until the test ends or stop is called.
func writesOn(t *testing.T, c kubernetes.Interface, ns string) (a *answers, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	a = &answers{}
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				err := aConfigMap(ctx, c, ns, fmt.Sprintf("by-%d-%d", i, n))
				if ctx.Err() == nil {
					a.note(err)
				}
			}
		})
	}
	stop = func() { cancel(); group.Wait() }
	t.Cleanup(stop)
	return a, stop
}

// An API server that starts serves before it has read the Leases.
func TestAnAPIServerThatStartsLetsNothingThroughThatItDoesNotKnow(t *testing.T) {
	standing(t)
	now := time.Now()
	for name, lease := range map[string]struct {
		holder  string
		renewed time.Time
	}{
		"another cluster leads": {"west.fleet", now},
		"the term is over":      {"east.fleet", now.Add(-2 * time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			ns := newNamespace(t)
			says(t, ns, lease.holder, lease.renewed, lease.renewed, time.Hour)
			keeps(t, fenceOf(t, asks("shops", checkoutWrites, ns)), map[string]bool{ns: true})
			a, stop := writesOn(t, inNamespace(t, ns, fencedAccount), ns)
			eventually(t, "it is asked", func(context.Context) error {
				if _, refused, _ := a.seen(); refused == 0 {
					return fmt.Errorf("nothing was refused")
				}
				return nil
			})
			if err := member.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			_, before, unanswered := a.seen()
			eventually(t, "it is asked again", func(context.Context) error {
				if _, refused, _ := a.seen(); refused < before+100 {
					return fmt.Errorf("%d were refused", refused-before)
				}
				return nil
			})
			stop()
			if through, _, _ := a.seen(); through > 0 {
				t.Errorf("%d writes were let through", through)
			}
			if unanswered == 0 {
				t.Error("nobody wrote while it was away")
			}
		})
	}
}

// An API server whose watches show nothing new goes by its own clock.
func TestAnAPIServerWhoseLeasesAreBehindEndsTheTerm(t *testing.T) {
	standing(t)
	ns := newNamespace(t)
	checkout := inNamespace(t, ns, fencedAccount)
	says(t, ns, "west.fleet", time.Now(), time.Now(), time.Hour)
	keeps(t, fenceOf(t, asks("shops", checkoutWrites, ns)), map[string]bool{ns: true})
	now := time.Now() // the term begins when the fence is in force, however long that took
	const lasts = 12 * time.Second
	leads := fmt.Sprintf(`{"spec":{"holderIdentity":"east.fleet","acquireTime":%[1]q,"renewTime":%[1]q,"leaseDurationSeconds":%[2]d}}`,
		now.UTC().Format(metav1.RFC3339Micro), int(lasts.Seconds()))
	if _, err := administrator(t).CoordinationV1().Leases(ns).Patch(t.Context(), v1alpha1.DefaultLeaseName,
		types.MergePatchType, []byte(leads), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the leader may write", func(ctx context.Context) error { return aConfigMap(ctx, checkout, ns, "in-the-term") })
	if err := member.PauseEtcd(); err != nil {
		t.Fatal(err)
	}
	resume := sync.OnceFunc(func() {
		if err := member.ResumeEtcd(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(resume)
	deadline := now.Add(lasts)
	eventually(t, "the term is over", func(context.Context) error {
		if left := time.Until(deadline); left > 0 {
			return fmt.Errorf("%v are left", left)
		}
		return nil
	})
	mustBeAnswered(t, aConfigMap(t.Context(), checkout, ns, "after-the-term"), termIsOver)
	resume()
	eventually(t, "what was written is there", func(ctx context.Context) error {
		all, err := checkout.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{})
		for i := range all.Items {
			if o := &all.Items[i]; o.CreationTimestamp.After(deadline) {
				t.Errorf("%s was written at %v, the term ended at %v", o.Name, o.CreationTimestamp, deadline)
			}
		}
		return err
	})
}

// An expression that reads a field which is not there is an error.
func TestALeaseThatSaysNothingLetsNothingThrough(t *testing.T) {
	parallel(t)
	ns := newNamespace(t)
	odd := newForeign(t, ns, v1alpha1.DefaultLeaseName)
	if _, err := administrator(t).CoordinationV1().Leases(ns).Create(t.Context(), odd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	keeps(t, fenceOf(t, asks("shops", checkoutWrites, ns)), map[string]bool{ns: true})
	checkout := inNamespace(t, ns, fencedAccount)
	eventually(t, "the gate is asked", func(ctx context.Context) error {
		if err := aConfigMap(ctx, checkout, ns, "written"); err == nil || !strings.Contains(err.Error(), "resulted in error") {
			return fmt.Errorf("answered %w", err)
		}
		return nil
	})
	if _, err := checkout.CoreV1().ConfigMaps(ns).Get(t.Context(), "written", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("it was written: %v", err)
	}
}

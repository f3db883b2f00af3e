package guard_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// warnings collects those of an API server.
type warnings struct {
	mu  sync.Mutex
	all []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

// since forgets the warnings, and returns them.
func (w *warnings) since() (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all, w.all = w.all, nil
	return all
}

// What would be refused is warned of once, with the reason.
func TestAFenceThatWarnsSaysOneThing(t *testing.T) {
	parallel(t)
	warned := &warnings{}
	config := rest.CopyConfig(member.AdminConfig())
	config.WarningHandler = warned
	client := clientFor(t, config)
	writes, schedules := labelledWrites, v1alpha1.Fencing{Schedules: &metav1.LabelSelector{}}
	acts := map[string]func(ctx context.Context, ns string) error{
		"writes": func(ctx context.Context, ns string) error {
			return aLabelledConfigMap("shop")(ctx, client, ns, fmt.Sprintf("by-admin-%d", time.Now().UnixNano()))
		},
		"schedules": func(ctx context.Context, ns string) error {
			_, err := client.BatchV1().Jobs(ns).Create(ctx, aJob(nil), metav1.CreateOptions{})
			return err
		},
		"locks": func(ctx context.Context, ns string) error { return takes(ctx, client, ns, "stock", "me") },
	}
	long := time.Now().Add(-time.Hour)
	for name, test := range map[string]struct {
		holder  string
		renewed time.Time
		want    []string
	}{
		"its cluster leads":     {"east.fleet", time.Now(), nil},
		"another cluster leads": {"west.fleet", long, []string{notLeading}},
		"its term is over":      {"east.fleet", long, []string{termIsOver}},
	} {
		for what, does := range acts {
			t.Run(name+"/"+what, func(t *testing.T) {
				ns := newNamespace(t)
				fencing := map[string]v1alpha1.Fencing{"writes": writes, "schedules": schedules, "locks": lockIn(ns)}[what]
				fencing.Enforcement = v1alpha1.EnforcementWarn
				says(t, ns, test.holder, test.renewed, test.renewed, time.Minute)
				keeps(t, fenceOf(t, asks(what, fencing, ns)), map[string]bool{ns: true})
				eventually(t, "the warning is that", func(ctx context.Context) error {
					warned.since()
					if err := does(ctx, ns); err != nil {
						return err
					}
					got := warned.since()
					if !slices.EqualFunc(got, test.want, strings.Contains) {
						return fmt.Errorf("the warnings are %q", got)
					}
					return nil
				})
			})
		}
	}
}

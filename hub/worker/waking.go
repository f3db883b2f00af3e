package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	batchclient "k8s.io/client-go/kubernetes/typed/batch/v1"

	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/guard"
)

const (
	// wakeTries is how often the observer tries to wake the CronJobs of a term, once per turn.
	wakeTries = 20
	// wakeAgain is the delay between the first and the second waking.
	wakeAgain = 3 * time.Second
	// wakeTimeout bounds the tries of one turn, and wakesAtOnce is how many namespaces are woken concurrently.
	wakeTimeout, wakesAtOnce = 5 * time.Second, 16
	// cronJobsPage is how many CronJobs one list request returns.
	cronJobsPage = 50
)

// wakeTerms wakes the fenced CronJobs of each namespace once a term of the member has begun there, and forgets the
// terms that are over.
//
// The CronJob controller of a follower backs off more and more, because its Jobs are rejected. An update of a
// CronJob wakes it at once. But its Job for a tick before the term would be rejected again. So the hub sets the
// CronJob's status so that everything before the term counts as scheduled. Then the controller resets its back-off,
// and returns for the next tick. The hub writes only the status, so its right to do that is no right to run
// anything.
//
// An API server may not have seen the Lease of the term yet. If there was a tick in the term already, it rejects
// the Job, and the controller backs off as before. So the CronJobs are woken twice, by another status each time.
//
// A namespace may take all of wakeTimeout, turn after turn: those with fewer failed tries come first.
func (o *observer) wakeTerms(ctx context.Context, terms map[fencedTerm]guard.Fence) {
	maps.DeleteFunc(o.wakings, func(t fencedTerm, _ waking) bool { return !has(terms, t) })
	var due []fencedTerm
	for t, f := range terms {
		is := o.wakings[t]
		done := is.times == 2 || is.tries == wakeTries || o.Clock.Now().Boot < is.next
		if !f.Warns() && f.Schedules() != nil && !done {
			due = append(due, t)
		}
	}
	slices.SortFunc(due, func(a, b fencedTerm) int { return cmp.Compare(o.wakings[a].tries, o.wakings[b].tries) })
	ctx, cancel := context.WithTimeout(ctx, wakeTimeout)
	defer cancel()
	after := make([]waking, len(due))
	var group errgroup.Group // its functions return no errors
	group.SetLimit(wakesAtOnce)
	for i, t := range due {
		after[i] = o.wakings[t]
		group.Go(func() error {
			if ctx.Err() == nil {
				after[i] = o.wakeTerm(ctx, t, terms[t].Schedules(), after[i])
			}
			return nil
		})
	}
	_ = group.Wait()
	for i, t := range due {
		o.wakings[t] = after[i]
	}
}

// waking is the progress of waking a term's CronJobs.
type waking struct {
	times int           // how often all of them were woken
	tries int           // failed attempts since then
	next  time.Duration // boot reading of the next try
}

// wakeTerm wakes the CronJobs of a term, and returns the progress.
func (o *observer) wakeTerm(ctx context.Context, t fencedTerm, of labels.Selector, is waking) waking {
	now := o.Clock.Now().Boot
	// A status has whole seconds. upTo is the last one before the term, so that a tick at its very beginning is not
	// lost.
	upTo := time.UnixMicro(t.began - 1).Truncate(time.Second)
	if is.times == 0 {
		upTo = upTo.Add(-time.Second) // so that the second waking changes the status
	}
	err := o.wakeCronJobs(ctx, t.namespace, of, upTo)
	if err == nil {
		return waking{times: is.times + 1, next: now + wakeAgain}
	}
	if is.tries++; apierrors.IsForbidden(err) || errors.Is(err, transport.ErrTooLarge) {
		is.tries = wakeTries
	}
	if is.tries == wakeTries {
		o.Log.Info("The CronJobs are not woken: their first Jobs of this term may be late", "namespace", t.namespace,
			"err", transport.Shorten(bare(err)))
	}
	return is
}

func (o *observer) cronJobs(namespace string) batchclient.CronJobInterface {
	return batchclient.NewForConfigOrDie(o.Tenants()).CronJobs(namespace)
}

// wakeCronJobs wakes the CronJobs whose Jobs match and that were last scheduled before upTo.
func (o *observer) wakeCronJobs(ctx context.Context, namespace string, of labels.Selector, upTo time.Time) error {
	list := metav1.ListOptions{Limit: cronJobsPage}
	for {
		page, err := o.cronJobs(namespace).List(ctx, list)
		if err != nil {
			return fmt.Errorf("list the CronJobs: %w", err)
		}
		for i := range page.Items {
			job := &page.Items[i]
			// The CronJob controller looks for ticks after this time.
			last := cmp.Or(job.Status.LastScheduleTime, &job.CreationTimestamp)
			if !of.Matches(labels.Set(job.Spec.JobTemplate.Labels)) || !last.Time.Before(upTo) {
				continue
			}
			if err := o.wakeCronJob(ctx, job, upTo); err != nil {
				return err
			}
		}
		if list.Continue = page.Continue; list.Continue == "" {
			return nil
		}
	}
}

// wakeCronJob sets the status of a CronJob so that everything before upTo counts as scheduled.
func (o *observer) wakeCronJob(ctx context.Context, job *batchv1.CronJob, upTo time.Time) error {
	data, _ := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": job.ResourceVersion}, // a Job may have been created since
		"status":   map[string]any{"lastScheduleTime": metav1.NewTime(upTo)},
	})
	if !o.mayWrite() {
		return guard.ErrMayNotWrite
	}
	_, err := o.cronJobs(job.Namespace).Patch(ctx, job.Name, types.MergePatchType, data,
		metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("wake CronJob %s: %w", job.Name, err)
	}
	return nil
}

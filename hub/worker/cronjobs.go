package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/hub/guard"
)

// cronJobsPage is how many CronJobs one list request returns.
const cronJobsPage = 50

// scheduledUpTo returns the time after which the CronJob controller looks for ticks.
func scheduledUpTo(o *batchv1.CronJob) time.Time {
	if last := o.Status.LastScheduleTime; last != nil {
		return last.Time
	}
	return o.CreationTimestamp.Time
}

// wakeCronJobs wakes the CronJobs whose Jobs match and that were last scheduled before upTo.
func (w *Worker) wakeCronJobs(ctx context.Context, namespace string, of *metav1.LabelSelector, upTo time.Time) error {
	selector, err := metav1.LabelSelectorAsSelector(of)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, wakeTimeout)
	defer cancel()
	o := metav1.ListOptions{Limit: cronJobsPage}
	for {
		page, err := w.CronJobs().CronJobs(namespace).List(ctx, o)
		if err != nil {
			return fmt.Errorf("list the CronJobs: %w", err)
		}
		for i := range page.Items {
			o := &page.Items[i]
			if !selector.Matches(labels.Set(o.Spec.JobTemplate.Labels)) || !scheduledUpTo(o).Before(upTo) {
				continue
			}
			if err := w.wakeCronJob(ctx, o, upTo); err != nil {
				return err
			}
		}
		if o.Continue = page.Continue; o.Continue == "" {
			return nil
		}
	}
}

// wakeCronJob sets the status of a CronJob so that everything before upTo counts as scheduled.
func (w *Worker) wakeCronJob(ctx context.Context, o *batchv1.CronJob, upTo time.Time) error {
	data, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": o.ResourceVersion}, // a Job may have been created since
		"status":   map[string]any{"lastScheduleTime": metav1.NewTime(upTo)},
	})
	if err != nil {
		return err
	}
	if err := guard.Allowed(ctx); err != nil {
		return err
	}
	_, err = w.CronJobs().CronJobs(o.Namespace).Patch(ctx, o.Name, types.MergePatchType, data, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("wake CronJob %s: %w", o.Name, err)
	}
	return nil
}

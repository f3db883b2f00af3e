package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/guard"
)

const (
	// cronJobsPage is how many CronJobs are listed at once. A larger page than transport.MaxTenantsBody is not read.
	cronJobsPage = 20
	// maxCronJobs bounds what the CronJobs of a namespace take together, in bytes, so that those of other namespaces
	// are woken too.
	maxCronJobs = 8 << 20
	// asMetadata has an API server answer with the metadata of an object alone.
	asMetadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
)

// cronJobs is what counts of a page of CronJobs. Tenants fill the rest, which is skipped as it is decoded. So are more of
// them than were asked for.
type cronJobs struct {
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
	Items [cronJobsPage]cronJob `json:"items"`
}

type cronJob struct {
	Metadata struct {
		Name              string      `json:"name"`
		ResourceVersion   string      `json:"resourceVersion"`
		CreationTimestamp metav1.Time `json:"creationTimestamp"`
	} `json:"metadata"`
	Spec struct {
		JobTemplate struct {
			Metadata struct {
				Labels labels.Set `json:"labels"`
			} `json:"metadata"`
		} `json:"jobTemplate"`
	} `json:"spec"`
	Status struct {
		LastScheduleTime *metav1.Time `json:"lastScheduleTime"`
	} `json:"status"`
}

// scheduledUpTo is the time after which its controller looks for ticks.
func (o *cronJob) scheduledUpTo() time.Time {
	if last := o.Status.LastScheduleTime; last != nil {
		return last.Time
	}
	return o.Metadata.CreationTimestamp.Time
}

// wakeCronJobs wakes those whose Jobs match, and that have scheduled nothing since an instant.
func (w *Worker) wakeCronJobs(ctx context.Context, namespace string, of *metav1.LabelSelector, upTo time.Time) error {
	selector, err := metav1.LabelSelectorAsSelector(of)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, wakeTimeout)
	defer cancel()
	var read int
	var next string
	for {
		page, size, err := w.listCronJobs(ctx, namespace, next)
		if err != nil {
			return fmt.Errorf("list the CronJobs: %w", err)
		}
		for i := range page.Items {
			o := &page.Items[i]
			if o.Metadata.Name == "" || !selector.Matches(o.Spec.JobTemplate.Metadata.Labels) || !o.scheduledUpTo().Before(upTo) {
				continue
			}
			if err := w.wakeCronJob(ctx, namespace, o, upTo); err != nil {
				return err
			}
		}
		if next = page.Metadata.Continue; next == "" {
			return nil
		}
		if read += size; read > maxCronJobs {
			return fmt.Errorf("list the CronJobs: %w: they have more than %d MiB together",
				transport.ErrTooLarge, maxCronJobs>>20)
		}
	}
}

// listCronJobs returns a page of CronJobs, and how many bytes it had.
func (w *Worker) listCronJobs(ctx context.Context, namespace, from string) (page cronJobs, size int, err error) {
	list := w.CronJobs().Get().Namespace(namespace).Resource("cronjobs").SetHeader("Accept", "application/json").
		VersionedParams(&metav1.ListOptions{Limit: cronJobsPage, Continue: from}, scheme.ParameterCodec).Do(ctx)
	if err := list.Error(); err != nil {
		return page, 0, err
	}
	body, _ := list.Raw() // its error would be the one above
	err = json.Unmarshal(body, &page)
	return page, len(body), err
}

// wakeCronJob makes the status of a CronJob say that what came before an instant was scheduled.
func (w *Worker) wakeCronJob(ctx context.Context, namespace string, o *cronJob, upTo time.Time) error {
	data, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": o.Metadata.ResourceVersion}, // a Job may have been created meanwhile
		"status":   map[string]any{"lastScheduleTime": metav1.NewTime(upTo)},
	})
	if err != nil {
		return err
	}
	if err := guard.Allowed(ctx); err != nil {
		return err
	}
	err = w.CronJobs().Patch(types.MergePatchType).Namespace(namespace).Resource("cronjobs").Name(o.Metadata.Name).
		SubResource("status").SetHeader("Accept", asMetadata).Body(data).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("wake CronJob %s: %w", o.Metadata.Name, err)
	}
	return nil
}

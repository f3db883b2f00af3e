package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/process"
)

const (
	cronNamespace = "shop"
	// scheduled is the annotation that the CronJob controller puts on each Job.
	scheduled = "batch.kubernetes.io/cronjob-scheduled-timestamp"
	// fencingRole is the ClusterRole of config/fencing.
	fencingRole = "leasecast-hub-fencing"
)

// fencedLabel is on the Jobs of fenced CronJobs.
var fencedLabel = map[string]string{"run": "once"}

// cronStageOptions describe the fleet.
func cronStageOptions(dir string, say func(string)) harness.Options {
	o := harness.Options{
		Timings: harness.Fast, Dir: dir, Progress: say,
		Fencing: &v1alpha1.Fencing{Schedules: &metav1.LabelSelector{MatchLabels: fencedLabel}},
	}
	for i, name := range clusters {
		o.Members = append(o.Members, harness.Member{Name: name, Priority: 100 - i, Namespaces: []string{cronNamespace}})
	}
	return o
}

// cronStage is a fleet with a CronJob controller in each member.
type cronStage struct {
	*harness.Drill
	o           cronOptions
	say         func(string)
	view        *harness.View
	controllers []*process.Process
}

// beginCron makes the CronJobs, starts their controllers, and returns when a cluster leads.
func beginCron(ctx context.Context, d *harness.Drill, o cronOptions, say func(string)) (s *cronStage, err error) {
	s = &cronStage{Drill: d, o: o, say: say}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.view, err = d.Look(ctx); err != nil {
		return nil, err
	}
	if _, err := s.AwaitFenced(ctx, harness.PolicyName); err != nil { // before that Jobs are anybody's
		return nil, err
	}
	for _, m := range clusters {
		if o.unwoken {
			if err := s.leaveAsleep(ctx, m); err != nil {
				return nil, err
			}
		}
		p, err := d.StartControllers(m, "cronjob-controller", "--leader-elect=false")
		if err != nil {
			return nil, err
		}
		s.controllers = append(s.controllers, p)
		for i := range o.cronJobs {
			if err := d.Members[m].Create(ctx, cronJob(i)); err != nil {
				return nil, err
			}
		}
	}
	say(fmt.Sprintf("%d CronJobs are in %s, each with the real CronJob controller", o.cronJobs,
		strings.Join(clusters, ", ")))
	_, err = s.AwaitLeader(ctx, cronNamespace, "")
	return s, err
}

// awaitTick returns when all CronJobs have ticked.
func (s *cronStage) awaitTick(ctx context.Context) error {
	return s.Await(ctx, 3*time.Minute, "all CronJobs tick", func(ctx context.Context) error {
		runs, err := s.runs(ctx)
		if err == nil && len(runs) < s.o.cronJobs {
			err = fmt.Errorf("there are %d Jobs", len(runs))
		}
		return err
	})
}

// leaveAsleep takes the right to wake CronJobs from the hub.
func (s *cronStage) leaveAsleep(ctx context.Context, member string) error {
	role := &rbacv1.ClusterRole{}
	if err := s.Members[member].Get(ctx, client.ObjectKey{Name: fencingRole}, role); err != nil {
		return err
	}
	role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.APIGroups,
			batchv1.GroupName)
	})
	return s.Members[member].Update(ctx, role)
}

func cronJob(i int) *batchv1.CronJob {
	o := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: cronNamespace, Name: fmt.Sprintf("bill-%02d", i)}}
	o.Spec.Schedule = "* * * * *"
	o.Spec.JobTemplate.Labels = fencedLabel
	o.Spec.JobTemplate.Spec.Template.Spec = corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "bill", Image: "bill"}},
	}
	return o
}

// close ends what begin has started.
func (s *cronStage) close() error {
	var errs []error
	for _, p := range s.controllers {
		errs = append(errs, p.Stop())
	}
	if s.view != nil {
		s.view.Close()
	}
	return errors.Join(errs...)
}

// runs are all Jobs of CronJobs in all members.
func (s *cronStage) runs(ctx context.Context) (all []run, err error) {
	for _, m := range clusters {
		var jobs batchv1.JobList
		if err := s.Members[m].List(ctx, &jobs, client.InNamespace(cronNamespace)); err != nil {
			return nil, fmt.Errorf("the Jobs in %s: %w", m, err)
		}
		for i := range jobs.Items {
			j := &jobs.Items[i]
			at, err := time.Parse(time.RFC3339, j.Annotations[scheduled])
			if err != nil {
				return nil, fmt.Errorf("of which tick is Job %s in %s: %w", j.Name, m, err)
			}
			if len(j.OwnerReferences) != 1 {
				return nil, fmt.Errorf("of which CronJob is Job %s in %s: it has %d owners", j.Name, m, len(j.OwnerReferences))
			}
			all = append(all, run{tick{j.OwnerReferences[0].Name, at.UTC()}, m, j.CreationTimestamp.Time})
		}
	}
	return all, nil
}

// terms are those that were seen.
func (s *cronStage) terms() (all []term) {
	for _, m := range clusters {
		of := map[int64]*term{}
		var epochs []int64
		for place, led := range s.view.Terms() {
			if name, _, _ := strings.Cut(place.Cluster, "."); name != m {
				continue
			}
			for _, l := range led {
				if of[l.Epoch] == nil {
					of[l.Epoch] = &term{member: m, acquired: l.AcquireTime}
					epochs = append(epochs, l.Epoch)
				}
				if t := of[l.Epoch]; t.end.Before(l.Deadline()) {
					t.end = l.Deadline()
				}
			}
		}
		for _, e := range epochs {
			all = append(all, *of[e])
		}
	}
	return all
}

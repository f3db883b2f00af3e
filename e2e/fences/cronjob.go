package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
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
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/process"
)

const (
	cronNamespace = "shop"
	// scheduled is the annotation that the CronJob controller puts on each Job.
	scheduled = "batch.kubernetes.io/cronjob-scheduled-timestamp"
	// fencingRole is the ClusterRole of config/fencing.
	fencingRole = "leasecast-hub-fencing"
	// lead is how long before a tick a change begins at most, and trail how long after it.
	lead, trail = 8 * time.Second, 2 * time.Second
	// away is how long the hub is lost: longer than a term.
	away = 14 * time.Second
	// judgedTicks is how many ticks are judged.
	judgedTicks = 300
	// lastJobs is how long the Jobs of the last tick are waited for.
	lastJobs = 20 * time.Second
)

// fencedLabel is on the Jobs of fenced CronJobs.
var fencedLabel = map[string]string{"run": "once"}

// change is a way to change the leader.
type change struct {
	name string
	make func(*cronTestbed, context.Context) (leader string, err error)
}

var changes = []change{
	{"handover", func(s *cronTestbed, ctx context.Context) (string, error) { return s.HandOver(ctx, cronNamespace) }},
	{"failover", func(s *cronTestbed, ctx context.Context) (string, error) {
		return "", s.FailOver(ctx, cronNamespace, func(ctx context.Context, _ string) error {
			return process.Pass(ctx, away)
		})
	}},
	{"the hub is killed", func(s *cronTestbed, ctx context.Context) (string, error) {
		return s.KillHub(ctx, cronNamespace, away)
	}},
	{"the hub is paused", func(s *cronTestbed, ctx context.Context) (string, error) {
		return s.PauseHub(ctx, cronNamespace, away)
	}},
}

func (r tickVerdict) String() string {
	return fmt.Sprintf("%d ticks: %d ran twice, %d in a follower, %d were lost, %d of them while a cluster led; "+
		"the first tick of a term came %.0f s late at worst",
		r.Ticks, r.RanTwice, r.RanInFollower, r.Lost, r.LostWhileLed, r.WorstFirstTickSeconds)
}

// failed is an error if a tick was run where it must not be.
func (r tickVerdict) failed() error {
	if len(r.Breaches) > 0 {
		return fmt.Errorf("%d breaches; the first: %s", len(r.Breaches), r.Breaches[0])
	}
	return must.ErrorIf(r.Ticks == r.Lost, "no tick ran: nothing was seen")
}

// cronTestbed is a fleet with a CronJob controller in each member.
type cronTestbed struct {
	*harness.Drill
	say         func(string)
	cronJobs    int // that tick each minute
	unwoken     bool
	view        *harness.View
	controllers []*process.Process
}

// fleet has one policy, which fences CronJobs.
func (s *cronTestbed) fleet() harness.Options {
	return harness.Options{Timings: harness.Fast, Members: harness.Members(clusters, cronNamespace),
		Fencing: &v1alpha1.Fencing{Schedules: &metav1.LabelSelector{MatchLabels: fencedLabel}}}
}

// begin makes the CronJobs, starts their controllers, and returns when a cluster leads.
func (s *cronTestbed) begin(ctx context.Context, d *harness.Drill) {
	s.Drill, s.view = d, must.Get(d.Look(ctx))
	must.Get(s.AwaitFenced(ctx, harness.PolicyName)) // before that Jobs are created anywhere
	for _, m := range clusters {
		if s.unwoken {
			s.leaveAsleep(ctx, m)
		}
		s.controllers = append(s.controllers, must.Get(d.StartControllers(m, "cronjob-controller", "--leader-elect=false")))
		for i := range s.cronJobs {
			must.Do(d.Members[m].Create(ctx, cronJob(i)))
		}
	}
	s.say(fmt.Sprintf("%d CronJobs are in %s, each with the real CronJob controller", s.cronJobs,
		strings.Join(clusters, ", ")))
	must.Get(s.AwaitLeader(ctx, cronNamespace, ""))
}

// leaveAsleep takes the right to wake CronJobs from the hub.
func (s *cronTestbed) leaveAsleep(ctx context.Context, member string) {
	role := &rbacv1.ClusterRole{}
	must.Do(s.Members[member].Get(ctx, client.ObjectKey{Name: fencingRole}, role))
	role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.APIGroups, batchv1.GroupName)
	})
	must.Do(s.Members[member].Update(ctx, role))
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
func (s *cronTestbed) close() error {
	var errs []error
	for _, p := range s.controllers {
		errs = append(errs, p.Stop())
	}
	if s.view != nil {
		s.view.Close()
	}
	return errors.Join(errs...)
}

// play changes the leader once a minute until there were enough ticks, and judges them.
func (s *cronTestbed) play(ctx context.Context, d *harness.Drill) report {
	defer func() { _ = s.close() }() // at worst they end with this program
	s.begin(ctx, d)
	must.Do(s.Await(ctx, 3*time.Minute, "all CronJobs tick", func(ctx context.Context) error {
		return must.Try(func() {
			if n := len(s.runs(ctx)); n < s.cronJobs {
				must.Fail("there are %d Jobs", n)
			}
		})
	}))
	random := rand.New(rand.NewPCG(1, 0))
	first := time.Now().Truncate(time.Minute).Add(time.Minute)
	if time.Until(first) < lead {
		first = first.Add(time.Minute)
	}
	var ticks []tick
	for i := range judgedTicks / s.cronJobs {
		border := first.Add(time.Duration(i) * time.Minute)
		for n := range s.cronJobs {
			ticks = append(ticks, tick{cronJob(n).Name, border.UTC()})
		}
		offset := -lead + time.Duration(random.Int64N(int64(lead+trail)))
		if i%3 == 2 {
			offset = 30 * time.Second // far from any tick
		}
		must.Do(process.Pass(ctx, time.Until(border.Add(offset))))
		c := changes[i%len(changes)]
		must.Get(c.make(s, ctx))
		s.say(fmt.Sprintf("%s, %.1f s from the tick of %s; %d Jobs so far", c.name, offset.Seconds(), clockTime(border),
			len(s.runs(ctx))))
	}
	must.Do(process.Pass(ctx, time.Until(ticks[len(ticks)-1].at.Add(lastJobs))))
	must.Do(s.Check())
	return judgeTicks(ticks, s.runs(ctx), s.terms())
}

// runs are all Jobs of CronJobs in all members.
func (s *cronTestbed) runs(ctx context.Context) (all []run) {
	for _, m := range clusters {
		var jobs batchv1.JobList
		must.Do(s.Members[m].List(ctx, &jobs, client.InNamespace(cronNamespace)), "the Jobs in %s", m)
		for _, j := range jobs.Items {
			at, err := time.Parse(time.RFC3339, j.Annotations[scheduled])
			must.Do(err, "the tick of Job %s in %s", j.Name, m)
			owner := metav1.GetControllerOfNoCopy(&j)
			if owner != nil {
				all = append(all, run{tick{owner.Name, at.UTC()}, m, j.CreationTimestamp.Time})
			} else {
				must.Fail("Job %s in %s has no owner", j.Name, m)
			}
		}
	}
	return all
}

// terms are those that were seen.
func (s *cronTestbed) terms() (all []term) {
	for place, led := range s.view.Terms() {
		member, _, _ := strings.Cut(place.Cluster, ".")
		of := map[int64]term{}
		for _, l := range led {
			t, seen := of[l.Epoch]
			if !seen {
				t = term{member: member, acquired: l.AcquireTime}
			}
			if t.end.Before(l.Deadline()) {
				t.end = l.Deadline()
			}
			of[l.Epoch] = t
		}
		all = slices.AppendSeq(all, maps.Values(of))
	}
	return all
}

// settling is how long a term has to last after a tick for that to be a tick that its cluster should have run.
const settling = 15 * time.Second

// term is one that was seen in the Leases of its cluster, by the hub's clock.
type term struct {
	member        string
	acquired, end time.Time // end is the latest deadline
}

// tick is one time of one CronJob.
type tick struct {
	cronJob string
	at      time.Time
}

// run is a Job that a CronJob controller has created.
type run struct {
	tick
	member  string
	created time.Time // by the API server's clock, in whole seconds
}

// tickVerdict is what became of the ticks: out/drill-cronjob.json.
type tickVerdict struct {
	Ticks         int `json:"ticks"`
	RanTwice      int `json:"ranTwice"`
	RanInFollower int `json:"ranInFollower"`
	Lost          int `json:"lost"`
	// LostWhileLed are those of the lost ticks whose cluster led for long enough.
	LostWhileLed int `json:"lostWhileLed"`
	// WorstFirstTickSeconds is how late a CronJob's first Job of a term came, after the first tick of the term. Where
	// none came at all it is the time that the term lasted after that tick.
	WorstFirstTickSeconds float64 `json:"worstFirstTickSeconds"`
	// Breaches tell of each tick that ran twice or in a follower.
	Breaches []string `json:"breaches,omitempty"`
}

// judgeTicks judges what was run of some ticks in these terms.
func judgeTicks(ticks []tick, runs []run, terms []term) tickVerdict {
	v := tickVerdict{Ticks: len(ticks)}
	of := map[tick][]run{}
	for _, r := range runs {
		of[r.tick] = append(of[r.tick], r)
		if !slices.ContainsFunc(terms, func(t term) bool { return t.covers(r) }) {
			v.RanInFollower++
			v.Breaches = append(v.Breaches, fmt.Sprintf("%s ran in %s at %s, which did not lead", r.tick, r.member,
				clockTime(r.created)))
		}
	}
	for _, k := range ticks {
		switch rs := of[k]; {
		case len(rs) > 1:
			v.RanTwice++
			v.Breaches = append(v.Breaches, fmt.Sprintf("%s ran in %s and in %s", k, rs[0].member, rs[1].member))
		case len(rs) == 0:
			v.Lost++
			if slices.ContainsFunc(terms, func(t term) bool { return !t.acquired.After(k.at) && t.end.Sub(k.at) >= settling }) {
				v.LostWhileLed++
			}
		}
	}
	for _, t := range terms {
		v.WorstFirstTickSeconds = max(v.WorstFirstTickSeconds, t.firstTickLate(ticks, runs).Seconds())
	}
	return v
}

// covers reports whether a Job belongs to the term: it is of a tick in the term, and was created before the end.
func (t term) covers(r run) bool {
	return t.member == r.member && !r.at.Before(t.acquired) && r.created.Before(t.end)
}

// firstTickLate is how long after the first tick of a term the last of the CronJobs ran for the first time in it.
func (t term) firstTickLate(ticks []tick, runs []run) (late time.Duration) {
	first := map[string]time.Time{}
	for _, k := range ticks {
		if at, ok := first[k.cronJob]; !k.at.Before(t.acquired) && k.at.Before(t.end) && (!ok || k.at.Before(at)) {
			first[k.cronJob] = k.at
		}
	}
	for cronJob, due := range first {
		ran := t.end
		for _, r := range runs {
			if r.cronJob == cronJob && t.covers(r) && r.created.Before(ran) {
				ran = r.created
			}
		}
		late = max(late, ran.Sub(due))
	}
	return late
}

func (k tick) String() string { return k.cronJob + " of " + clockTime(k.at) }

func clockTime(t time.Time) string { return t.UTC().Format(time.TimeOnly) }

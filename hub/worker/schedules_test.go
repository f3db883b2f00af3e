package worker

import (
	"maps"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/seal"
)

// writesOf is a fence of what an account writes in namespace shop.
func writesOf() guard.Fence {
	return guard.Fences(us, &v1alpha1.LeadershipPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "shops"},
		Spec: v1alpha1.LeadershipPolicySpec{
			Namespaces: v1alpha1.NamespaceSelection{Names: []string{"shop"}},
			Fencing: &v1alpha1.Fencing{Writes: []v1alpha1.WriteFence{{
				ServiceAccounts: []v1alpha1.FencedServiceAccount{{Name: "checkout"}},
				Resources:       []v1alpha1.FencedResources{{Names: []string{"configmaps"}}},
			}}},
		},
	}, nil)[0]
}

func TestWhoseCronJobsAreWoken(t *testing.T) {
	shop := map[string]map[string]string{"shop": nil}
	for name, test := range map[string]struct {
		fence  guard.Fence
		spaces map[string]map[string]string
		lease  func(*lease.Content)
		after  time.Duration // since the term began and its Lease was renewed
		want   bool
	}{
		"those of a namespace that is led here":     {jobsOf(""), shop, func(*lease.Content) {}, time.Second, true},
		"those of a term that begins just now":      {jobsOf(""), shop, func(*lease.Content) {}, 0, true},
		"none where another cluster leads":          {jobsOf(""), shop, func(l *lease.Content) { l.Holder = "west.fleet" }, time.Second, false},
		"none where nobody leads":                   {jobsOf(""), shop, func(l *lease.Content) { l.Holder = "" }, time.Second, false},
		"none by another Lease than the fence asks": {jobsOf(""), shop, func(l *lease.Content) { l.Name = "other" }, time.Second, false},
		"none of a term that is over":               {jobsOf(""), shop, func(*lease.Content) {}, 15 * time.Second, false},
		"none of a term that has not begun":         {jobsOf(""), shop, func(*lease.Content) {}, -time.Second, false},
		"none of a namespace that is not fenced":    {jobsOf(""), map[string]map[string]string{"bank": nil}, func(l *lease.Content) { l.Namespace = "bank" }, time.Second, false},
		"none of a namespace that is not there":     {jobsOf(""), nil, func(*lease.Content) {}, time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := eastLease(7)
			test.lease(&c)
			l := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}}
			if err := seal.Write(testKey, c, &l); err != nil {
				t.Fatal(err)
			}
			var namespaces []corev1.Namespace
			for name, labels := range test.spaces {
				namespaces = append(namespaces, corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
			}
			terms := termsOf([]guard.Fence{test.fence}, []coordinationv1.Lease{l}, namespaces, rigStart.Wall.Add(test.after))
			if (len(terms) > 0) != test.want {
				t.Errorf("terms %v, want some: %v", terms, test.want)
			}
		})
	}
}

// once selects Jobs.
var once = &metav1.LabelSelector{MatchLabels: map[string]string{"run": "once"}}

func TestACronJobIsWokenByItsStatus(t *testing.T) {
	began := rigStart.Wall
	before := began.Add(-time.Second)
	for name, test := range map[string]struct {
		created, last, began time.Time
		labels               string
		want                 time.Time // what was scheduled last, zero if nothing
	}{
		"one that has never run":                   {began.Add(-time.Hour), time.Time{}, began, "once", before},
		"one that has run before the term":         {began.Add(-time.Hour), began.Add(-time.Minute), began, "once", before},
		"a tick at the beginning is not left out":  {began.Add(-time.Hour), time.Time{}, began.Add(time.Minute), "once", began.Add(59 * time.Second)},
		"a tick just before the beginning is":      {began.Add(-time.Hour), time.Time{}, began.Add(time.Microsecond), "once", began},
		"not one that has run in the term":         {began.Add(-time.Hour), began, began, "once", began},
		"not one that is younger than the term":    {began.Add(time.Second), time.Time{}, began, "once", time.Time{}},
		"not one whose Jobs have no such label":    {began.Add(-time.Hour), time.Time{}, began, "often", time.Time{}},
		"one that runs next is not set back later": {began.Add(-time.Hour), began.Add(time.Hour), began, "once", began.Add(time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			o := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "bill", CreationTimestamp: metav1.NewTime(test.created)}}
			o.Spec.JobTemplate.Labels = map[string]string{"run": test.labels}
			if !test.last.IsZero() {
				o.Status.LastScheduleTime = &metav1.Time{Time: test.last}
			}
			east := newMemberAPI()
			east.storeCronJob(o)
			w := New(Options{CronJobs: east.cronJobs(t), Clock: clocktest.NewBubble(rigStart)})
			term := fencedTerm{"fence", "shop", test.began.UnixMicro()}
			if is := w.observer.wakeTerm(t.Context(), term, once, waking{times: 1}); is.times != 2 {
				t.Fatalf("it is %+v", is)
			}
			if last := scheduledLast(east.cronJob("bill")); !last.Equal(test.want) {
				t.Errorf("it was scheduled last at %v, want %v", last, test.want)
			}
		})
	}
}

// An API server that does not know the term yet refuses a tick of it, and the controller backs off.
func TestACronJobIsWokenTwice(t *testing.T) {
	before, again := rigStart.Wall.Add(-2*time.Second), rigStart.Wall.Add(-time.Second)
	tick := rigStart.Wall.Add(time.Second)
	unavailable := failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
	forbidden := failure(http.StatusForbidden, metav1.StatusReasonForbidden)
	type seen map[time.Duration]time.Time // what the status says, by the time since it was looked first
	for name, test := range map[string]struct {
		last   time.Time      // what was scheduled last before the term
		runs   time.Time      // the tick that is run after the first time
		answer *metav1.Status // to the first lists
		fails  int
		want   seen
	}{
		"a few seconds later by another status":     {want: seen{0: before, wakeAgain: again}},
		"not if a tick of the term was run":         {runs: tick, want: seen{0: before, 500 * time.Millisecond: tick}},
		"not if another hub has woken it":           {last: again, want: seen{0: again}},
		"only once if it was woken once before":     {last: before, want: seen{0: before, wakeAgain: again}},
		"as late as the first time succeeds":        {answer: unavailable, fails: 3, want: seen{0: {}, 1500 * time.Millisecond: before, 1500*time.Millisecond + wakeAgain: again}},
		"not where it is refused the first time":    {answer: forbidden, fails: 1, want: seen{0: {}}},
		"not where nothing is answered for a while": {answer: unavailable, fails: wakeTries, want: seen{0: {}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "bill", CreationTimestamp: metav1.NewTime(rigStart.Wall.Add(-time.Hour))}}
				o.Spec.JobTemplate.Labels = once.MatchLabels
				if !test.last.IsZero() {
					o.Status.LastScheduleTime = &metav1.Time{Time: test.last}
				}
				east, asked := newMemberAPI(), 0
				east.storeCronJob(o)
				east.refuses(func(req *http.Request) *metav1.Status {
					if req.Method != http.MethodGet {
						return nil
					}
					if asked++; asked > test.fails {
						return nil
					}
					return test.answer
				})
				w := New(Options{CronJobs: east.cronJobs(t), Clock: clocktest.NewBubble(rigStart), Log: logr.Discard()})
				is, term, got, last := waking{}, fencedTerm{"fence", "shop", rigStart.Wall.UnixMicro()}, seen{}, time.Unix(0, 0)
				for at := time.Duration(0); at < 20*time.Second; at += keepEvery {
					is = w.observer.wakeTerm(t.Context(), term, once, is)
					o := east.cronJob("bill")
					if now := scheduledLast(o); !now.Equal(last) {
						got[at], last = now, now
					}
					if !test.runs.IsZero() && is.times == 1 {
						o.Status.LastScheduleTime = &metav1.Time{Time: test.runs}
						east.storeCronJob(&o)
					}
					pass(keepEvery)
				}
				if !maps.EqualFunc(got, test.want, time.Time.Equal) {
					t.Errorf("its status said %v, want %v", got, test.want)
				}
			})
		})
	}
}

// scheduledLast is what a status says, zero if nothing.
func scheduledLast(o batchv1.CronJob) (last time.Time) {
	if o.Status.LastScheduleTime != nil {
		last = o.Status.LastScheduleTime.Time
	}
	return last
}

package worker

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/guard"
)

const (
	// never stands for no time in a status.
	never = -100 * time.Hour
	// atStart is the start of the test: a status has whole seconds.
	atStart = time.Nanosecond
)

// cronJob stores one in namespace shop, which was created and scheduled last at these offsets from the start.
func (r *env) cronJob(name, label string, created, last time.Duration) {
	o := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: name, CreationTimestamp: metav1.NewTime(testStart.Wall.Add(created)),
	}}
	o.Spec.JobTemplate.Labels = map[string]string{"run": label}
	if last != never {
		o.Status.LastScheduleTime = &metav1.Time{Time: testStart.Wall.Add(last)}
	}
	r.east.store("/apis/batch/v1", "cronjobs", o)
}

// cronJobs stores some that were created an hour before the start, and have run just then.
func (r *env) cronJobs(names ...string) {
	for _, name := range names {
		r.cronJob(name, "once", -time.Hour, -time.Hour)
	}
}

// scheduled returns when a CronJob was scheduled last.
func (r *env) scheduled(name string) (last time.Duration) {
	var o batchv1.CronJob
	r.east.shows(func(a *memberAPI) {
		stored := a.stored["/apis/batch/v1/namespaces/shop/cronjobs/"+name]
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored.Object, &o); err != nil {
			r.t.Error(err)
		}
	})
	if o.Status.LastScheduleTime == nil {
		return never
	}
	return o.Status.LastScheduleTime.Sub(testStart.Wall)
}

// An API server that does not show the term yet rejects a tick of it, and the controller backs off. So a CronJob is
// woken twice, by another status each time.
func TestObserver_WakesACronJobByItsStatus(t *testing.T) {
	type row struct {
		began    time.Duration // the term
		youth    time.Duration // the CronJob is that much younger than the term, if not zero
		last     time.Duration // when it ran; zero: never
		unfenced bool
		runs     time.Duration  // a tick that is run after the first waking
		answer   *metav1.Status // to the first lists
		fails    int
		want     []time.Duration // instants since the term began, each with what the status shows then
	}
	const second = time.Second
	woken := []time.Duration{0, -2 * second, wakeAgain, -second}
	later := []time.Duration{0, 58 * second, wakeAgain, 59 * second}
	failed := []time.Duration{0, never, 3 * keepEvery, -2 * second, 3*keepEvery + wakeAgain, -second}
	unwoken := []time.Duration{0, never}
	rows(t, map[string]row{
		"it never ran":               {want: woken},
		"it ran before the term":     {last: -time.Minute, want: woken},
		"it ran in the term":         {last: atStart, want: []time.Duration{0, 0}},
		"it was woken before":        {last: -second, want: []time.Duration{0, -second}},
		"it was woken once before":   {last: -2 * second, want: woken},
		"it runs a tick of the term": {runs: second, want: []time.Duration{0, -2 * second, keepEvery, second}},
		"it is younger":              {youth: second, want: unwoken},
		"its Jobs are not fenced":    {unfenced: true, want: unwoken},
		"the term begins later":      {began: time.Minute, want: later},
		"the term begins at 0.5 s":   {began: second / 2, want: []time.Duration{0, -second, wakeAgain, 0}},
		"three lists fail":           {answer: unavailable, fails: 3, want: failed},
		"20 lists fail":              {answer: unavailable, fails: 20, want: unwoken},
		"a list is rejected":         {answer: forbidden, fails: 1, want: unwoken},
	}, func(t *testing.T, row row) {
		r := newEnv(t, jobs("shops", "once"))
		pass(row.began)
		c := eastLease(20)
		c.AcquireTime, c.RenewTime = testStart.Wall.Add(row.began), testStart.Wall.Add(row.began)
		r.has(c)
		created, last, label := cmp.Or(row.youth, -time.Hour), cmp.Or(row.last, never), "once"
		if row.unfenced {
			label = "often"
		}
		r.cronJob("bill", label, created, last)
		listed := 0
		r.answer = func(req *http.Request) *metav1.Status {
			if strings.HasSuffix(req.URL.Path, "/cronjobs") {
				if listed++; listed <= row.fails {
					return row.answer
				}
			}
			return nil
		}
		got, shown := []time.Duration(nil), -200*time.Hour
		for at := time.Duration(0); at < 20*time.Second; at += keepEvery {
			writes := len(r.at(wakeCronJob))
			r.observe(t.Context())
			if now := r.scheduled("bill"); now != shown {
				got, shown = append(got, at, now), now
			} else if len(r.at(wakeCronJob)) > writes {
				t.Errorf("after %v its status is written, and does not change", at)
			}
			if row.runs != 0 && at == 0 {
				r.cronJob("bill", label, created, row.runs)
			}
			pass(keepEvery)
		}
		if !slices.Equal(got, row.want) {
			t.Errorf("its status shows %v, want %v", got, row.want)
		}
		if n := len(r.at(wakeCronJob)); n > 2 {
			t.Errorf("it is written %d times", n)
		}
	})
}

// A CronJob that is gone needs nothing. The others do.
func TestObserver_WakesTheOtherCronJobs(t *testing.T) {
	type row struct {
		answer *metav1.Status
		woken  bool // all that are left
		tries  int  // of the first one
	}
	rows(t, map[string]row{
		"it is woken":           {nil, true, 2},
		"it is gone":            {notFound, true, 2},
		"the member forbids it": {forbidden, false, 1},
		"the member is silent":  {internal, false, wakeTries},
	}, func(t *testing.T, row row) {
		r := newEnv(t, allJobs)
		var logged []string
		r.observer.Log = funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})
		r.cronJobs("bill", "till")
		r.answer = func(req *http.Request) *metav1.Status {
			if strings.HasSuffix(req.URL.Path, "/bill/status") {
				return row.answer
			}
			return nil
		}
		end := r.observes()
		pass(20 * time.Second)
		end()
		if woken := r.scheduled("till") != -time.Hour; woken != row.woken || len(r.at(wakeCronJob)) != row.tries {
			t.Errorf("the other one is woken: %v; tried at %v", woken, r.at(wakeCronJob))
		}
		if (len(logged) == 1) == row.woken || len(logged) == 1 && !strings.Contains(logged[0], `"namespace"="shop"`) {
			t.Errorf("logged: %q", logged)
		}
	})
}

// Tenants make any number of CronJobs, and fill them. A list with one that is too large is not asked for again.
func TestObserver_WakesCronJobsByPages(t *testing.T) {
	type row struct {
		fails error // the list of the second page
		woken int
	}
	rows(t, map[string]row{
		"all are read":     {nil, 115},
		"one is too large": {transport.ErrTooLarge, cronJobsPage},
	}, func(t *testing.T, row row) {
		r := newEnv(t, allJobs)
		var logged []string
		r.observer.Log = funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})
		for n := range 115 {
			r.cronJobs(fmt.Sprintf("bill-%03d", n))
		}
		lists := 0
		r.east.fails = func(req *http.Request) error {
			if req.URL.Query().Get("continue") != strconv.Itoa(cronJobsPage) {
				return nil
			}
			lists++
			return row.fails
		}
		end := r.observes()
		pass(20 * time.Second)
		end()
		woken := 0
		for n := range 115 {
			if r.scheduled(fmt.Sprintf("bill-%03d", n)) != -time.Hour {
				woken++
			}
		}
		tries := map[error]int{nil: 2, transport.ErrTooLarge: 1}[row.fails]
		if woken != row.woken || lists != tries || (len(logged) == 1) != (row.fails != nil) {
			t.Errorf("%d are woken, by %d lists, want %d by %d; logged: %q", woken, lists, row.woken, tries, logged)
		}
	})
}

// Lists of slow namespaces end with the turn. The honest namespace shop does not wait for them, and nor does its lock.
func TestObserver_WakesBesideSlowNamespaces(t *testing.T) {
	type row struct {
		slow int
		late bool // the term in shop begins when the others were tried
		want time.Duration
	}
	rows(t, map[string]row{
		"their terms begin together":        {wakesAtOnce - 1, false, 0},
		"many were tried before it begins":  {8 * wakesAtOnce, true, wakeTimeout + 2*keepEvery},
		"many terms begin together with it": {2 * wakesAtOnce, false, 2*wakeTimeout + 4*keepEvery},
	}, func(t *testing.T, row row) {
		o := &v1alpha1.LeadershipPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "shops"}}
		o.Spec.Namespaces.Selector = &metav1.LabelSelector{}
		o.Spec.Fencing = &v1alpha1.Fencing{Schedules: &metav1.LabelSelector{}}
		r := newEnv(t, guard.Fences(us, o, nil)[0], stockLock)
		if row.late {
			r.east.loses("/leases/")
		}
		for n := range row.slow {
			c := eastLease(20)
			c.Namespace = fmt.Sprintf("slow-%d", n)
			r.east.namespaces[c.Namespace] = nil
			r.has(c)
		}
		r.cronJobs("bill")
		r.east.takes = func(req *http.Request) time.Duration {
			if strings.Contains(req.URL.Path, "/slow-") {
				return time.Hour
			}
			return 0
		}
		defer r.observes()()
		var begins time.Duration
		if row.late {
			pass(time.Minute)
			r.has(eastLease(20))
			begins = time.Minute
		}
		pass(4 * wakeTimeout)
		woken, read, want := r.at(wakeCronJob), r.at(readLock), begins+row.want
		if len(woken) != 2 || woken[0] > want || len(read) == 0 || read[0] > want+wakeTimeout+keepEvery {
			t.Errorf("begun at %v, woken at %v, and the lock is read at %v", begins, woken, read)
		}
	})
}

func TestObserver_WakesForEnforcedSchedulesOnly(t *testing.T) {
	rows(t, map[string]func(*env){
		"a fence that warns": func(r *env) { r.wanted = []guard.Fence{warning} },
		"a fence of writes":  func(r *env) { r.wanted = accountWrites },
		"no term":            func(r *env) { r.wanted = []guard.Fence{allJobs}; r.east.loses("/leases/") },
	}, func(t *testing.T, change func(*env)) {
		r := newEnv(t, allJobs)
		r.cronJobs("bill")
		change(r)
		end := r.observes()
		pass(10 * time.Second)
		if end(); len(r.at("cronjobs")) > 0 {
			t.Errorf("CronJobs are read at %v", r.at("cronjobs"))
		}
	})
}

// Another worker of the same member may begin as soon as this one has returned.
func TestRun_ReturnsWhenNoRequestIsInFlight(t *testing.T) {
	rows(t, map[string]string{ // a part of the request's URL
		"it reads the policies":          "",
		"it lists what policies require": "/deployments?label",
		"it reads one of these objects":  "/deployments/till",
	}, func(t *testing.T, request string) {
		r := newEnv(t, allJobs)
		r.required = []schema.GroupVersionResource{ofDeployments}
		r.requires(ofDeployments, "shop", "till", "True")
		held := make(chan struct{})
		if request == "" {
			r.reading = held
		}
		r.east.fails = func(req *http.Request) error {
			if request != "" && strings.Contains(req.URL.String(), request) {
				<-held
			}
			return nil
		}
		returned := make(chan struct{})
		end := r.runs(r.Run)
		pass(2 * namespacePause)
		go func() {
			defer close(returned)
			end()
		}()
		pass(time.Minute)
		select {
		case <-returned:
			t.Error("it returned in the middle of it")
		default:
		}
		close(held)
		<-returned
	})
}

// Everything that has to be done in a member begins with Run.
func TestRun_DoesAllWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := observed(t)
		end := r.runs(r.Run)
		pass(21 * time.Second)
		end()
		for what, requests := range map[string][]string{
			"lists Leases": {"GET", "/leases?", "labelSelector=leasecast.dev"}, "keeps the guard": {guardProbe},
			"reads locks": {readLock}, "wakes CronJobs": {wakeCronJob},
			"keeps fences": {"gate-probe-"}, "watches registrations": {"watch=true", "reader.leasecast.dev"},
		} {
			if len(r.at(requests...)) == 0 {
				t.Errorf("nothing %s", what)
			}
		}
		const leases = "GET http://east/apis/coordination.k8s.io/v1/leases?"
		if all, selected := r.at(leases), r.at(leases, "labelSelector"); !slices.Equal(all, selected) {
			t.Errorf("all Leases are read at %v", all)
		}
	})
}

package worker

import (
	"context"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
)

// newLeader is a member that leads namespace shop for an hour, and has a fence.
func newLeader(t *testing.T, wanted guard.Fence) *rig {
	t.Helper()
	r := newRig(t)
	r.wanted = []guard.Fence{wanted}
	r.east.namespaces = map[string]map[string]string{"shop": nil}
	l := eastLease(20)
	l.Duration = time.Hour
	r.has(l)
	return r
}

// counts has r count requests of a method whose paths end in a text.
func (r *rig) counts(method, end string) *[]time.Duration {
	at := new([]time.Duration)
	r.east.refuses(func(req *http.Request) *metav1.Status {
		if req.Method == method && strings.HasSuffix(req.URL.Path, end) {
			*at = append(*at, time.Since(r.start))
		}
		return r.answer(req)
	})
	return at
}

// outOfTerm are the ways in which a term is not this hub's to look after, or in which nobody knows of one.
var outOfTerm = map[string]func(*rig){
	"another cluster leads": func(r *rig) {
		l := eastLease(21)
		l.Holder, l.Duration = "west.fleet", time.Hour
		r.has(l)
	},
	"the namespace is gone":             func(r *rig) { r.east.shows(func(a *memberAPI) { a.namespaces = nil }) },
	"no policy asks for anything":       func(r *rig) { r.will(func(r *rig) { r.wanted = nil }) },
	"the member takes no part":          func(r *rig) { r.is("east", func(m *fleet.Member) { m.PriorityReason = reason.NoPriority }) },
	"another installation serves it":    func(r *rig) { r.will(func(r *rig) { r.by = them }) },
	"another replica of the hub writes": func(r *rig) { r.will(func(r *rig) { r.standby = true }) },
}

// unreadable are the ways in which nobody knows of a term for a while.
var unreadable = map[string]func(r *rig, is bool){
	"the policies cannot be read": func(r *rig, is bool) {
		r.will(func(r *rig) {
			if r.unread = nil; is {
				r.unread = errRefused
			}
		})
	},
	"the cache is not read": func(r *rig, is bool) {
		r.east.shows(func(a *memberAPI) {
			if a.uncached = nil; is {
				a.uncached = func(client.ObjectList) error { return errRefused }
			}
		})
	},
}

// renews has somebody renew the lock for a while.
func (r *rig) renews(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); pass(5 * time.Second) {
		r.east.store(heldBy("a", int(time.Since(r.start)/time.Second)))
	}
}

func TestLocksAreWatchedWhereTheMemberLeads(t *testing.T) {
	f := lockOf(stock)
	for name, change := range outOfTerm {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newLeader(t, f)
				asked := r.counts(http.MethodGet, "/leases/stock")
				change(r)
				end := r.runs(r.observe)
				r.renews(20 * time.Second)
				if end(); len(*asked) > 0 || r.LockOf(f) != LockUnseen {
					t.Errorf("asked at %v, and its state is %d", *asked, r.LockOf(f))
				}
			})
			synctest.Test(t, func(t *testing.T) {
				r := newLeader(t, f)
				defer r.runs(r.observe)()
				r.renews(20 * time.Second)
				if is := r.LockOf(f); is != LockHeld || r.fenceNews != 1 {
					t.Fatalf("while it leads the state is %d, and there was news %d times", is, r.fenceNews)
				}
				change(r)
				pass(keepEvery)
				if is := r.LockOf(f); is != LockUnseen || r.fenceNews != 2 {
					t.Errorf("afterwards the state is %d, and there was news %d times", is, r.fenceNews)
				}
			})
		})
	}
}

func TestWhatWasSeenOfALockStaysWhileItsTermIsNotKnown(t *testing.T) {
	f := lockOf(stock)
	for name, change := range unreadable {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newLeader(t, f)
				defer r.runs(r.observe)()
				r.renews(20 * time.Second)
				asked := r.counts(http.MethodGet, "/leases/stock")
				change(r, true)
				pass(10 * time.Minute)
				if is := r.LockOf(f); is != LockHeld || len(*asked) > 0 || r.fenceNews != 1 {
					t.Errorf("the state is %d, asked at %v, and there was news %d times", is, *asked, r.fenceNews)
				}
				change(r, false)
				pass(keepEvery)
				if len(*asked) == 0 {
					t.Error("it is not looked at again")
				}
			})
		})
	}
}

// schedules gives the member a CronJob, and counts how often it is woken.
func (r *rig) schedules() (woken *[]time.Duration) {
	r.east.shows(func(a *memberAPI) {
		a.put("/apis/batch/v1/namespaces/shop/cronjobs/bill", &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "bill", "namespace": "shop"},
		}})
	})
	return r.counts(http.MethodPatch, "/cronjobs/bill/status")
}

func TestCronJobsAreWokenWhereTheMemberLeads(t *testing.T) {
	for name, change := range outOfTerm {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newLeader(t, jobsOf(""))
				woken := r.schedules()
				change(r)
				end := r.runs(r.observe)
				pass(20 * time.Second)
				if end(); len(*woken) > 0 {
					t.Errorf("woken at %v", *woken)
				}
			})
		})
	}
}

func TestOnlyEnforcedSchedulesAreWoken(t *testing.T) {
	for name, fence := range map[string]guard.Fence{"a fence that warns": jobsOf(v1alpha1.EnforcementWarn), "a fence of writes": writesOf()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newLeader(t, fence)
				woken := r.schedules()
				end := r.runs(r.observe)
				pass(20 * time.Second)
				if end(); len(*woken) > 0 {
					t.Errorf("woken at %v", *woken)
				}
			})
		})
	}
}

// What was woken is not woken again because nobody knew of the term for a while.
func TestCronJobsAreWokenTwiceInATerm(t *testing.T) {
	unreadable := map[string]func(*rig, bool){"it goes on": func(*rig, bool) {}, "the policies": unreadable["the policies cannot be read"], "the cache": unreadable["the cache is not read"]}
	for name, change := range unreadable {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newLeader(t, jobsOf(""))
				woken := r.schedules()
				defer r.runs(r.observe)()
				pass(10 * time.Second)
				change(r, true)
				pass(10 * time.Second)
				change(r, false)
				pass(10 * time.Second)
				if want := []time.Duration{0, wakeAgain}; !slices.Equal(*woken, want) {
					t.Errorf("woken at %v, want %v", *woken, want)
				}
			})
		})
	}
}

// All that has to be done in a member begins with the work there.
func TestWhatAWorkerDoes(t *testing.T) {
	for name, test := range map[string]struct {
		wanted guard.Fence
		done   func(*rig, *http.Request) bool
	}{
		"it lists Leases whose watches do not last": {jobsOf(""), func(r *rig, req *http.Request) bool {
			again := time.Since(r.start) >= readEvery
			return again && path.Base(req.URL.Path) == "leases" && strings.Contains(req.URL.Query().Get("labelSelector"), v1alpha1.ManagedLabel)
		}},
		"it keeps the guard": {jobsOf(""), func(_ *rig, req *http.Request) bool { return req.URL.Query().Get("dryRun") != "" }},
		"it watches locks":   {lockOf(stock), func(_ *rig, req *http.Request) bool { return strings.HasSuffix(req.URL.Path, "/leases/stock") }},
		"it wakes CronJobs":  {jobsOf(""), func(_ *rig, req *http.Request) bool { return strings.HasSuffix(req.URL.Path, "/cronjobs") }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newLeader(t, test.wanted)
				r.is("east", func(m *fleet.Member) { m.Problem.Reason = reason.Unwatched })
				end, done := r.runs(r.Run), false
				r.east.refuses(func(req *http.Request) *metav1.Status {
					done = done || test.done(r, req)
					return r.answer(req)
				})
				pass(2 * readEvery)
				if end(); !done {
					t.Error("it does not")
				}
			})
		})
	}
}

// Another worker of the same member may begin as soon as this one has returned.
func TestAWorkerReturnsWhenNothingIsUnderWayAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLeader(t, jobsOf(""))
		r.reading = make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		returned := make(chan struct{})
		go func() {
			defer close(returned)
			r.Run(ctx)
		}()
		pass(time.Second)
		cancel()
		pass(time.Minute)
		select {
		case <-returned:
			t.Error("it returned while somebody reads the policies")
		default:
		}
		close(r.reading)
		<-returned
	})
}

// Without watches that last, nobody would hear of what happens to Leases.
func TestLeasesAreListedWhileTheirWatchesDoNotLast(t *testing.T) {
	unwatched := func(m *fleet.Member) { m.Problem.Reason = reason.Unwatched }
	for name, test := range map[string]struct {
		change func(*rig)
		want   []time.Duration
	}{
		"they do":         {func(*rig) {}, nil},
		"they do not":     {func(r *rig) { r.is("east", unwatched) }, every(readEvery, 3*readEvery)},
		"another problem": {func(r *rig) { r.is("east", func(m *fleet.Member) { m.Problem.Reason = reason.Unreachable }) }, nil},
		"the member is not known": {func(r *rig) {
			r.is("east", unwatched)
			r.Forget(eastKey)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				p := r.reads()
				test.change(r)
				var listed []time.Duration
				r.east.refuses(func(req *http.Request) *metav1.Status {
					if path.Base(req.URL.Path) == "leases" {
						listed = append(listed, time.Since(r.start))
					}
					return nil
				})
				end := r.runs(func(ctx context.Context) { r.readUnwatched(ctx, p) })
				pass(3*readEvery + time.Second)
				if end(); !slices.Equal(listed, test.want) {
					t.Errorf("listed at %v, want %v", listed, test.want)
				}
			})
		})
	}
}

package publish

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/seal"
)

// publisherTest is a Publisher in a bubble, in which time passes when all wait, and its member.
type publisherTest struct {
	*Publisher
	t      *testing.T
	member *testMember
	clock  *clocktest.Bubble
	ctx    context.Context // of what runs
	cancel context.CancelFunc
	ended  chan struct{} // once started
	began  time.Time     // of the bubble
	marked time.Time     // at the last step "mark"

	removed  *coordinationv1.Lease // at the last step "remember"
	promise  Promise               // at the same step
	mu       sync.Mutex
	mayNot   bool
	changed  []string
	reports  []string
	reported []string // of readers
}

func newPublisherTest(t *testing.T) *publisherTest {
	w := &publisherTest{t: t, member: newTestMember(), began: time.Now(),
		clock: clocktest.NewBubble(lease.Reading{Wall: time.Now().Round(0)})}
	w.ctx, w.cancel = context.WithCancel(t.Context())
	note := func(list *[]string, format string, args ...any) {
		w.mu.Lock()
		defer w.mu.Unlock()
		*list = append(*list, fmt.Sprintf(format, args...))
	}
	w.Publisher = New(Options{
		Client: w.member, Fleet: fleetName, Cluster: "east.fleet", ClusterUID: "uid-of-east", Hub: "hub", Key: testKey,
		Clock: w.clock, Promises: NewPromises(), Log: logr.Discard(),
		Queue: workqueue.NewTypedDelayingQueue[types.NamespacedName](),
		MayWrite: func(lease.Reading) bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return !w.mayNot
		},
		Report: func(write bool, _ lease.Reading, err error) {
			note(&w.reports, "%s%s", map[bool]string{true: "write", false: "read"}[write],
				map[bool]string{true: "-failed"}[err != nil])
		},
		Changed: func(namespace string) { note(&w.changed, "%s", cmp.Or(namespace, "all")) },
		TellOfReader: func(name types.NamespacedName, why reason.Reason, _ string) {
			note(&w.reported, "%s:%s", name, why)
		},
	})
	return w
}

// start runs the Publisher until stop.
func (w *publisherTest) start() {
	w.ended = make(chan struct{})
	go func() {
		defer close(w.ended)
		w.Run(w.ctx)
	}()
	synctest.Wait()
}

// stop ends the Publisher. After Run has returned, no request may be in flight.
func (w *publisherTest) stop() {
	w.t.Helper()
	if w.cancel(); w.ended == nil {
		w.Queue.ShutDown()
		return
	}
	<-w.ended
	w.member.mu.Lock()
	defer w.member.mu.Unlock()
	if n := w.member.inFlight; n > 0 {
		w.t.Errorf("%d requests are in flight after Run has returned", n)
	}
}

// after lets time pass until nothing more happens at that instant.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// assignLead makes this member the leader of a namespace from now on.
func (w *publisherTest) assignLead(namespace string, epoch int64, timings Timings) {
	t := term("east", epoch)
	t.AcquireTime = w.clock.Now().Wall
	w.Assign(keyOf(namespace), assign.Assignment{Role: assign.Lead, Term: t, First: true}, timings)
}

// setMay sets whether the tenure has the right to write.
func (w *publisherTest) setMay(may bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mayNot = !may
}

func (w *publisherTest) promised(namespace string) Promise {
	return w.Promises.Get(types.NamespacedName{Namespace: fleetName, Name: namespace})
}

// leads fails the test unless the Lease is live.
func (w *publisherTest) leads(namespace string) {
	w.t.Helper()
	c, _ := wire.Read(w.there(namespace))
	if c.Holder != "east.fleet" || !c.Live(w.clock.Now().Wall) {
		w.t.Fatalf("the Lease of %s is not live: %+v", namespace, c)
	}
}

// there returns the Lease of a namespace in the member, or an empty one.
func (w *publisherTest) there(namespace string) *coordinationv1.Lease {
	if obj := w.member.lease(keyOf(namespace)); obj != nil {
		return obj
	}
	return &coordinationv1.Lease{}
}

func readerKey(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "pods", Name: name}
}

// register stores a registration in the member, confirmed now.
func (w *publisherTest) register(name string, options ...string) *coordinationv1.Lease {
	return w.member.put(readerKey(name), registered(name, 1,
		func(r *lease.Registration) { r.Confirmed = time.Now() }, registrationOf(options)))
}

// confirm has all readers confirm their registrations.
func (w *publisherTest) confirm() {
	w.member.mu.Lock()
	defer w.member.mu.Unlock()
	for key, l := range w.member.leases {
		if key.Namespace == "pods" {
			l = l.DeepCopy()
			l.Spec.RenewTime.Time = time.Now()
			w.member.store(key, l)
		}
	}
}

// back has the member show its etcd's versions before so many changes.
func (w *publisherTest) back(by int) {
	w.member.mu.Lock()
	defer w.member.mu.Unlock()
	w.member.version -= by
	for key, obj := range w.member.leases {
		obj = obj.DeepCopy()
		obj.ResourceVersion = strconv.Itoa(min(int(number(obj.ResourceVersion)), w.member.version))
		w.member.leases[key] = obj
	}
}

// sent counts the requests of a verb since the last mark.
func (w *publisherTest) sent(verb string) int { return count(w.member.since(w.marked), verb) }

// taken returns what was noted since the last time.
func (w *publisherTest) taken(list *[]string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	got := *list
	*list = nil
	return got
}

// link sets what the member does with requests from now on. Most may be limited to a verb.
func (w *publisherTest) link(words []string) {
	verb := strings.Join(words[1:], "")
	confirm := link(func(context.Context, request) error {
		w.member.edit(readerKey("r"), func(l *coordinationv1.Lease) { l.Spec.RenewTime.Time = time.Now() })
		return nil
	})
	switch words[0] {
	case "up":
		w.member.becomes(nil, nil)
	case "swallows":
		w.member.becomes(link(swallow).only(verb), nil)
	case "resets":
		w.member.becomes(link(reset).only(verb), nil)
	case "refuses":
		w.member.becomes(link(refuse).only(verb), nil)
	case "unanswered":
		w.member.becomes(nil, link(swallow).only(verb))
	case "loses": // the answers
		w.member.becomes(nil, link(reset).only(verb))
	case "delays": // the answers
		w.member.becomes(nil, delayed(func() time.Duration { return duration(words[1]) }).only(strings.Join(words[2:], "")))
	case "stops": // the hub before the answer
		w.member.becomes(nil, func(context.Context, request) error { w.cancel(); return nil })
	case "confirmed-before": // the registration of r, before a request arrives
		w.member.becomes(confirm.only(verb), nil)
	case "confirmed-after": // before it is answered
		w.member.becomes(nil, confirm.only(verb))
	case "registers": // so many changes of registrations before the answer to an update
		w.member.becomes(nil, link(func(context.Context, request) error {
			w.play("registers " + words[1])
			return nil
		}).only("update"))
	default:
		w.t.Fatalf("no such link: %q", words)
	}
}

// playPublisher runs scripts on Publishers. A step names the namespace of a Lease, or the reader of a registration.
//
//   - start, stop, after: the Publisher runs, ends, and time passes. "mark" begins what sent, sequence, called and
//     reports look at;
//   - lead, follow, hold, absent, revoke, next: assignments. "led" starts and leads ns for 20 s, so that nothing from
//     before counts any more;
//   - lease, edit, delete, deleted, gone, show, restore: the Lease in the member, and what a watch shows of it;
//   - register, see, confirm, twice: registrations; "see" shows one to the Publisher;
//   - link: what the member does with requests from now on; back: it shows an older state.
//
// The others are conditions that must hold.
func playPublisher(t *testing.T, scripts string) {
	t.Helper()
	for name, steps := range scriptsOf(t, scripts) {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *publisherTest) {
				for _, step := range steps {
					w.play(step)
				}
			})
		})
	}
}

// inBubble runs a test in a bubble, and stops what it has started. A bubble fails its test if a goroutine outlives it.
func inBubble(t *testing.T, test func(*publisherTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newPublisherTest(t)
		defer func() {
			w.stop()
			if w.member.spins {
				t.Errorf("more than %d requests at one instant", mostAtOnce)
			}
		}()
		test(w)
	})
}

func (w *publisherTest) play(step string) {
	w.t.Helper()
	args := strings.Fields(step)
	verb, args := args[0], args[1:]
	first := strings.Join(args[:min(1, len(args))], "")
	for _, steps := range []map[string]func(){
		w.actions(first, args), w.changes(first, args),
	} {
		if do := steps[verb]; do != nil {
			do()
			return
		}
	}
	if words := w.words(first, args)[verb]; words == nil {
		w.t.Fatalf("no such step: %q", step)
	} else if got := words(); !slices.Equal(got, args) {
		w.t.Fatalf("%s: %q, want %q", verb, got, args)
	}
}

func duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	must(err)
	return d
}

// actions returns what happens to a Publisher. first is the first argument, or "".
func (w *publisherTest) actions(first string, args []string) map[string]func() {
	return map[string]func(){
		"start":    w.start,
		"stop":     w.stop,
		"stopping": w.cancel,
		"after":    func() { after(duration(first)) },
		"mark":     func() { w.marked, w.reports = time.Now(), nil; w.taken(&w.changed) },
		"lead":     func() { w.assignLead(first, epochOf(append(args, "20")[1]), testTimings) },
		"lead-many": func() {
			for _, ns := range namespaces(int(number(first))) {
				w.assignLead(ns, 20, testTimings)
			}
		},
		"follow": func() {
			timings := testTimings
			if len(args) > 1 {
				timings.Skew = duration(args[1])
			}
			w.Assign(keyOf(first), assign.Assignment{Role: assign.Follow, Term: term("west", 20)}, timings)
		},
		"hold": func() {
			w.Assign(keyOf(first), assign.Assignment{Role: assign.Hold, Term: term("east", 20)}, testTimings)
		},
		"absent": func() { w.Assign(keyOf(first), assign.Assignment{Role: assign.Absent}, testTimings) },
		"led": func() {
			w.start()
			w.assignLead("ns", 20, ackTimings)
			after(15 * second)
			w.confirm()
			after(5 * second)
			w.leads("ns")
		},
		"revoke": func() {
			w.Assign(keyOf("ns"), assign.Assignment{Role: assign.Revoke, Term: term("", 21), Revoked: term("east", 20)},
				ackTimings)
			after(0)
		},
		"next": func() { // the next term
			w.Assign(keyOf("ns"), assign.Assignment{Role: assign.Follow, Term: term("west", 22)}, ackTimings)
		},
		"stop-renewing":  func() { w.StopRenewing(first) },
		"forget":         func() { w.Forget(first) },
		"may":            func() { w.setMay(true) },
		"may-not":        func() { w.setMay(false) },
		"steps":          func() { w.clock.Step(duration(first)) }, // the wall clock
		"work":           func() { w.Work(w.ctx, keyOf(first)) },
		"read-all":       func() { w.ReadAll(w.ctx) },
		"read-again":     func() { w.ReadAgain(w.ctx) },
		"list-readers":   func() { w.listReaders(w.ctx) },
		"remove-expired": func() { w.removeExpired(w.ctx) },
		"link":           func() { w.link(args) },
		"leads":          func() { w.leads(first) },
		"same-promise": func() {
			if now := w.promised(first); now != w.promise {
				w.t.Fatalf("promised %+v, then %+v", w.promise, now)
			}
		},
		"status": func() {
			if got, want := w.SyncStatus(keyOf(first)).withoutMarks(), statusOf(args[1:]); got != want {
				w.t.Fatalf("the status is %+v, want %+v", got, want)
			}
		},
		"sent": func() { // as in "sent update 12..13"
			from, to, _ := strings.Cut(args[1], "..")
			if n := w.sent(first); n < int(number(from)) || n > int(number(cmp.Or(to, from))) {
				w.t.Fatalf("%d requests to %s, want %s: %v", n, first, args[1], w.member.since(w.marked))
			}
		},
	}
}

// changes returns what happens in the member, and what a watch shows of it.
func (w *publisherTest) changes(first string, args []string) map[string]func() {
	return map[string]func(){
		"lease": func() { w.member.put(keyOf(first), leaseOf(first, args[1:])) },
		"edit":  func() { w.member.edit(keyOf(first), edit(args[1:])) },
		"backdate": func() { // by 5 s
			key := testKey
			if len(args) > 1 {
				key = otherKey
			}
			w.member.edit(keyOf(first), func(l *coordinationv1.Lease) {
				c, _ := wire.Read(l)
				c.RenewTime = c.RenewTime.Add(-5 * second)
				must(seal.Write(key, c, l))
			})
		},
		"delete":   func() { w.member.put(keyOf(first), nil) },
		"gone":     func() { w.ObserveGone(keyOf(first)); after(0) },
		"deleted":  func() { w.member.put(keyOf(first), nil); w.play("gone " + first) },
		"show":     func() { w.Observe(w.member.lease(keyOf(first))) },
		"remember": func() { w.removed, w.promise = w.member.lease(keyOf(first)), w.promised(first) },
		"restore":  func() { w.member.set(keyOf(first), w.removed) },
		"register": func() { w.register(first, args[1:]...) },
		"register-many": func() {
			for i := range int(number(first)) {
				w.register("r-"+strconv.Itoa(i), args[1:]...)
			}
		},
		"registers": func() { // changes of one registration
			for range int(number(first)) {
				w.register("other", "released=20")
			}
		},
		"see": func() { w.ObserveReader(w.register(first, args[1:]...)) },
		"see-many": func() {
			for i := range int(number(first)) {
				w.play("see r-" + strconv.Itoa(i) + " " + strings.Join(args[1:], " "))
			}
		},
		"shown":       func() { w.ObserveReader(w.member.lease(readerKey(first))) }, // a registration
		"reader-gone": func() { w.ObserveReaderGone(types.UID(first)) },
		"unregister":  func() { w.member.put(readerKey(first), nil) },
		"confirm":     w.confirm,
		"twice": func() { // another registration under the same version
			l := w.member.lease(readerKey(first))
			l.Spec.RenewTime.Time = l.Spec.RenewTime.Add(second)
			w.member.set(readerKey(first), l)
		},
		"back": func() { w.back(int(number(first))) },
		"await": func() { // the next request of a verb
			for w.sent(first) == 0 {
				after(10 * time.Millisecond)
			}
		},
	}
}

// words returns what a condition finds, which must be what the step says.
func (w *publisherTest) words(first string, args []string) map[string]func() []string {
	c, _ := wire.Read(w.there(first))
	is := func(name string, is bool) []string { return strings.Fields(map[bool]string{true: name}[is]) }
	verbs := func(namespace string) (verbs []string) {
		for _, r := range w.member.since(w.marked) {
			if namespace == "" || r.key.Namespace == namespace {
				verbs = append(verbs, r.verb)
			}
		}
		return verbs
	}
	return map[string]func() []string{
		"exists":   func() []string { return is(first, c.Name != "") },
		"missing":  func() []string { return is(first, c.Name == "") },
		"holder":   func() []string { return []string{first, cmp.Or(c.Holder, "nobody")} },
		"hub":      func() []string { return []string{first, cmp.Or(c.Hub, "none")} },
		"sequence": func() []string { return verbs("") },
		"last":     func() []string { all := verbs(""); return all[len(all)-1:] },
		"first":    func() []string { return []string{verbs(args[1])[0], args[1]} }, // of a namespace
		"timeouts": func() (seconds []string) { // of lists
			for _, r := range w.member.since(w.marked) {
				if r.within != nil {
					seconds = append(seconds, strconv.Itoa(int(*r.within)))
				}
			}
			return seconds
		},
		"took":     func() []string { return []string{time.Since(w.marked).String()} },
		"called":   func() []string { return w.taken(&w.changed) }, // the controller
		"reports":  func() []string { return w.taken(&w.reports) },
		"failures": func() []string { return is("some", strings.Contains(fmt.Sprint(w.taken(&w.reports)), "failed")) },
		"reported": func() []string { return w.taken(&w.reported) }, // of readers
		"initial": func() []string { // the namespaces of the Leases that were read at the start, or "unread"
			got := is("unread", !w.Initial().Read)
			for _, c := range w.Initial().Leases {
				got = append(got, c.Namespace)
			}
			return slices.Sorted(slices.Values(got))
		},
		"initial-at": func() []string { return []string{w.Initial().At.String()} },
		"leases": func() (got []string) {
			for _, key := range w.Leases() {
				got = append(got, key.Namespace)
			}
			return slices.Sorted(slices.Values(got))
		},
		"leases-in": func() []string { return []string{first, strconv.Itoa(len(w.LeasesIn(first)))} },
		"found": func() []string { // sealed, unsealed or no
			known, sealed, ok := w.Find(keyOf(first))
			if ok == (known == lease.Content{}) {
				w.t.Fatalf("found %+v", known)
			}
			switch {
			case !ok:
				return []string{first, "no"}
			case sealed:
				return []string{first, "sealed"}
			}
			return []string{first, "unsealed"}
		},
		"remaining": func() []string { // ours or others
			ours, others := w.Remaining()
			return append(is("ours", ours), is("others", others)...)
		},
		"written": func() []string { // namespaces that the hub may have written in
			got := w.MayHaveWritten()
			if w.MayHaveWrittenIn("a") != slices.Contains(got, "a") {
				w.t.Fatalf("may have written in %q, but in a: %v", got, w.MayHaveWrittenIn("a"))
			}
			return got
		},
		"syncers":      func() []string { return []string{strconv.Itoa(len(w.syncers))} },
		"relinquished": func() []string { return []string{map[bool]string{true: "yes", false: "no"}[w.Relinquish()]} },
		"released":     func() []string { return []string{strconv.Itoa(int(w.SyncStatus(keyOf("ns")).Released))} },
		"registered":   func() []string { return is(first, w.member.lease(readerKey(first)) != nil) },
		"unregistered": func() []string { return is(first, w.member.lease(readerKey(first)) == nil) },
		"finalizer":    func() []string { return is(first, len(w.member.lease(readerKey(first)).Finalizers) > 0) },
		"readers":      func() []string { return []string{strconv.Itoa(w.Readers())} },
	}
}

// dice is a random source that several goroutines may use.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

func newDice(seed uint64) *dice { return &dice{r: rand.New(rand.NewPCG(seed, 0))} }

func (d *dice) roll(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}

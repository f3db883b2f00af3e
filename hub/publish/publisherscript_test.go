package publish

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/seal"
)

// link sets what the member does with requests from now on. Most may be limited to a verb.
func (w *publisherTest) link(words []string) {
	verb := strings.Join(words[1:min(2, len(words))], "")
	step := link(func(context.Context, request) error { w.play(strings.Join(words[2:], " ")); return nil })
	links := map[string][2]link{
		"up":       {nil, nil},
		"swallows": {link(swallow).only(verb), nil},
		"resets":   {link(reset).only(verb), nil},
		"refuses":  {link(refuse).only(verb), nil},
		"loses":    {nil, link(reset).only(verb)}, // the answers
		"stops":    {nil, func(context.Context, request) error { w.cancel(); return nil }},
		"then":     {nil, step.only(verb)}, // a step before it is answered
	}
	if words[0] == "delays" { // the answers
		links["delays"] = [2]link{nil, delayed(func() time.Duration { return duration(words[2]) }).only(verb)}
	}
	is, ok := links[words[0]]
	if !ok {
		w.t.Fatalf("no such link: %q", words)
	}
	w.member.becomes(is[0], is[1])
}

// playPublisher runs scripts on Publishers. A step names the namespace of a Lease, or the reader of a registration.
//
//   - start, stop, after: the Publisher runs, ends, and time passes. "mark" begins what sent, called and
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

// withSkew returns timings with the ε after the name of a Lease, if there is one.
func withSkew(args []string) Timings {
	timings := testTimings
	if len(args) > 1 {
		timings.Skew = duration(args[1])
	}
	return timings
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
			w.Assign(keyOf(first), assign.Assignment{Role: assign.Follow, Term: term("west", 20)}, withSkew(args))
		},
		"hold": func() {
			w.Assign(keyOf(first), assign.Assignment{Role: assign.Hold, Term: term("east", 20)}, testTimings)
		},
		"absent": func() { w.Assign(keyOf(first), assign.Assignment{Role: assign.Absent}, withSkew(args)) },
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
		"stop-prober": func() { // of a silent member
			w.silence.mu.Lock()
			namespace := w.silence.prober.Namespace
			w.silence.mu.Unlock()
			w.StopRenewing(namespace)
		},
		"may-not": func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.mayNot = true
		},
		"resume":         func() { w.Resume() },
		"forget":         func() { w.Forget(first) },
		"work":           func() { w.Work(w.ctx, keyOf(first)) },
		"read-all":       func() { w.ReadAll(w.ctx) },
		"list-readers":   func() { w.Work(w.ctx, listReadersKey) },
		"remove-expired": func() { w.Work(w.ctx, removeExpiredKey) },
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
		"see":         func() { w.Readers.Observe(w.register(first, args[1:]...)) },
		"shown":       func() { w.Readers.Observe(w.member.lease(readerKey(first))) }, // a registration
		"reader-gone": func() { w.Readers.ObserveGone(types.UID(first)) },
		"replace": func() { // a registration by another one of that name
			w.member.edit(readerKey(first), func(l *coordinationv1.Lease) { l.UID = "another" })
		},
		"unregister": func() { w.member.put(readerKey(first), nil) },
		"confirm":    w.confirm,
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
		"exists":  func() []string { return is(first, c.Name != "") },
		"missing": func() []string { return is(first, c.Name == "") },
		"holder":  func() []string { return []string{first, cmp.Or(c.Holder, "nobody")} },
		"hub":     func() []string { return []string{first, cmp.Or(c.Hub, "none")} },
		"first":   func() []string { return []string{verbs(args[1])[0], args[1]} }, // of a namespace
		"timeouts": func() (seconds []string) { // of lists
			for _, r := range w.member.since(w.marked) {
				if r.within != nil {
					seconds = append(seconds, strconv.Itoa(int(*r.within)))
				}
			}
			return seconds
		},
		"renewed": func() []string { // how many namespaces
			namespaces := map[string]bool{}
			for _, r := range w.member.since(w.marked) {
				if r.verb == "update" {
					namespaces[r.key.Namespace] = true
				}
			}
			return []string{strconv.Itoa(len(namespaces))}
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
		"found": func() []string { // sealed, unsealed or no
			for _, l := range w.LeasesIn(first) {
				if l.Known {
					return []string{first, map[bool]string{true: "sealed", false: "unsealed"}[l.Sealed]}
				}
			}
			return []string{first, "no"}
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
		"readers":      func() []string { return []string{strconv.Itoa(w.Readers.Count())} },
		"too-many":     func() []string { return is("yes", w.Readers.TooMany()) },
	}
}

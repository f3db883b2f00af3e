package publish

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/assign"
)

// syncerTest is a syncer and its Lease in a member.
type syncerTest struct {
	t      testing.TB
	syncer *leaseSyncer
	member *testMember
	now    lease.Reading
	// may: the tenure has the right to write. unwatched: no watch has shown yet what an answer did.
	may, unwatched bool
	pending        step

	// heldObject and heldError are the answer to a request that is carried out, and not yet answered.
	heldObject *coordinationv1.Lease
	heldError  error
	remembered *coordinationv1.Lease
}

func newSyncerTest(t testing.TB) *syncerTest {
	return &syncerTest{t: t, member: newTestMember(), now: at(0), may: true, syncer: &leaseSyncer{
		key:  keyOf("ns"),
		self: self{cluster: "east.fleet", uid: "uid-of-east", hub: "hub", key: testKey},
	}}
}

// there is the Lease in the member, or nil.
func (s *syncerTest) there() *coordinationv1.Lease { return s.member.lease(keyOf("ns")) }

// assign reads a role, a holder, an epoch and options, as in "lead east 20 first".
func (s *syncerTest) assign(words []string) {
	a := assign.Assignment{Role: map[string]assign.Role{"lead": assign.Lead, "follow": assign.Follow, "hold": assign.Hold,
		"absent": assign.Absent, "revoke": assign.Revoke}[words[0]]}
	if len(words) > 1 {
		a.Term = term(holder(words[1]), epochOf(words[2]))
	}
	for _, option := range words[min(len(words), 3):] {
		switch name, value, _ := strings.Cut(option, "="); name {
		case "first":
			a.First = true
		case "fresh":
			a.MinRenewTime = wall(number(value))
		case "revokes":
			a.Revoked = term("east", epochOf(value))
		case "for":
			a.Term.Duration = inSeconds(number(value))
		default:
			s.t.Fatalf("no such option: %s", option)
		}
	}
	s.syncer.assign(a, Timings{Renew: 5 * second, Timeout: 3 * second, Patience: 10 * second})
}

// next fails the test unless the syncer's next step is this one.
func (s *syncerTest) next(want string) {
	s.t.Helper()
	s.syncer.known.watched = !s.unwatched
	s.pending = s.syncer.next(s.now, s.may, true)
	if got := describe(s.pending); got != want {
		s.t.Fatalf("at %v the next step is to %s, want %s", s.now.Wall.Sub(zero), got, want)
	}
}

// describe describes a step: what it writes, with what renewTime, and what it promises.
func describe(s step) string {
	switch s.action {
	case idle:
		if s.after > 0 {
			return "wait " + s.after.String()
		}
		return "wait"
	case read:
		return "read"
	case remove:
		return "remove"
	}
	c, _ := wire.Read(s.lease)
	words := []string{map[action]string{create: "create", update: "update"}[s.action],
		cmp.Or(strings.TrimSuffix(c.Holder, ".fleet"), "nobody"), fmt.Sprint(c.Epoch),
		"renewTime", c.RenewTime.Sub(zero).String()}
	if c.Duration != 15*second {
		words = append(words, "for", c.Duration.String())
	}
	if s.promised > 0 {
		words = append(words, "promise", s.reading.Wall.Add(s.promised).Sub(zero).String())
	}
	if s.revokes != 0 {
		words = append(words, "revokes", fmt.Sprint(s.revokes))
	}
	return strings.Join(words, " ")
}

// carry carries out the pending request in the member.
func (s *syncerTest) carry() (*coordinationv1.Lease, error) {
	p := Publisher{Options: Options{Client: s.member}}
	return p.send(context.Background(), keyOf("ns"), s.pending, time.Minute)
}

// answer passes an answer to the syncer, which must pause for that long.
func (s *syncerTest) answer(obj *coordinationv1.Lease, err error, pause time.Duration) {
	s.t.Helper()
	if err != nil {
		obj = nil
	}
	if got := s.syncer.handleAnswer(s.pending, obj, err); got != pause {
		s.t.Fatalf("after %s, answered with %v, the syncer pauses for %v, want %v", describe(s.pending), err, got, pause)
	}
}

// status fails the test unless the status, without messages and marks, is this one.
func (s *syncerTest) status(want SyncStatus) {
	s.t.Helper()
	if got := s.syncer.status.withoutMarks(); got != want {
		s.t.Fatalf("at %v the status is %+v, want %+v", s.now.Wall.Sub(zero), got, want)
	}
}

// play runs scripts on a syncer. Times are in seconds after zero, and D is 15 s unless a step has "for".
//
//   - read, create, update, remove, wait: the syncer's next step must be this one, as describe has it. "firstRenewal"
//     is how long after zero the first renewal of a term is due that began at zero;
//   - ok, unanswered, unanswered but done, forbidden, no namespace, conflict: its outcome. "stored" with
//     a pause and changes: the member stores it with these, and the syncer pauses. Between "carried" and "answered" it
//     is carried out and not answered;
//   - status, problem, message, mark, hub, allows, changed, unchanged: the condition that must hold of the status, of
//     the hub's mark in it and on the Lease, of the Lease's ε, and of whether the controller is called;
//   - assign with a role and a term, lease with a term: a sealed Lease is put into the member, which no watch shows;
//   - at, wall, boot: the time on both clocks, or on one;
//   - edit with changes, touched, vanishes: what happens to the Lease; shown, gone: what a watch shows. "edited" and
//     "deleted" are shown at once. "event" shows other content under the same version. "back" restores
//     the Lease of "remember".
func play(t *testing.T, scripts string) {
	t.Helper()
	for name, steps := range scriptsOf(t, scripts) {
		t.Run(name, func(t *testing.T) {
			s := newSyncerTest(t)
			for _, step := range steps {
				s.play(step)
			}
		})
	}
}

func (s *syncerTest) play(step string) {
	s.t.Helper()
	words := strings.Fields(step)
	args := words[1:]
	switch words[0] {
	case "read", "create", "update", "remove", "wait":
		s.next(s.expand(step))
	case "assign":
		s.assign(args)
	case "status":
		s.status(statusOf(args))
	case "problem":
		if got := s.syncer.status.Problem; got != reason.Reason(args[0]) {
			s.t.Fatalf("at %v the problem is %s, want %s", s.now.Wall.Sub(zero), got, args[0])
		}
	case "message":
		if want := strings.TrimPrefix(step, "message "); !strings.Contains(s.syncer.status.Message, want) {
			s.t.Fatalf("the message is %q, want %q in it", s.syncer.status.Message, want)
		}
	case "mark":
		if got := s.syncer.status.Marked; got != (args[0] == "ours") {
			s.t.Fatalf("marked: %v, want %s", got, args[0])
		}
	case "hub":
		if c, mac := wire.Read(s.there()); c.Hub != strings.TrimPrefix(args[0], "none") || !testKey.Sealed(c, mac) {
			s.t.Fatalf("the Lease carries the mark %q, want %q, sealed", c.Hub, args[0])
		}
	case "allows":
		if c, mac := wire.Read(s.there()); c.Skew != inSeconds(number(args[0])) || !testKey.Sealed(c, mac) {
			s.t.Fatalf("the Lease has the ε %v", c.Skew)
		}
	case "changed", "unchanged":
		if got := s.syncer.reported.changes(s.syncer.status); got != (words[0] == "changed") {
			s.t.Fatalf("the status has changed: %v; it is %+v", got, s.syncer.status)
		}
	default:
		for _, steps := range []map[string]func(){s.outcomes(words), s.events(words)} {
			if do := steps[words[0]]; do != nil {
				do()
				return
			}
		}
		s.t.Fatalf("no such step: %q", step)
	}
}

// outcomes are what becomes of the pending request.
func (s *syncerTest) outcomes(words []string) map[string]func() {
	return map[string]func(){
		"ok":       func() { obj, err := s.carry(); s.answer(obj, err, 0) },
		"conflict": func() { _, err := s.carry(); s.answer(nil, err, pauseSilent) },
		"unanswered": func() {
			if strings.Join(words[1:], " ") == "but done" {
				_, err := s.carry()
				must(err)
			}
			s.answer(nil, errTimeout, cmp.Or(map[string]time.Duration{"long": pauseRefused}[words[len(words)-1]], pauseSilent))
		},
		"forbidden": func() { s.answer(nil, errForbidden, pauseRefused) },
		"no":        func() { s.answer(nil, apierrors.NewNotFound(leases, "ns"), pauseRefused) }, // namespace
		"carried":   func() { s.heldObject, s.heldError = s.carry() },
		"answered":  func() { s.answer(s.heldObject, s.heldError, 0) },
		"stored": func() {
			obj, err := s.carry()
			must(err)
			if words[2] == "old" {
				obj.Spec, obj.Annotations = s.remembered.Spec, s.remembered.Annotations
			} else {
				edit(words[2:])(obj)
			}
			s.member.set(keyOf("ns"), obj.DeepCopy())
			s.answer(obj, nil, inSeconds(number(words[1])))
		},
	}
}

// events are what happens around the syncer.
func (s *syncerTest) events(words []string) map[string]func() {
	n := func() float64 { return number(words[1]) }
	all := func(steps string) func() {
		return func() {
			for step := range strings.SplitSeq(steps, "; ") {
				s.play(step)
			}
		}
	}
	return map[string]func(){
		// In epoch 20, renewed at zero.
		"leads":      all("assign lead east 20 first; read; ok; create east 20 renewTime 0s promise 15s; ok"),
		"follows":    all("assign follow west 20; read; ok; create west 20 renewTime 0s; ok; wait; status InPlace"),
		"at":         func() { s.now = at(n()) },
		"wall":       func() { s.now.Wall = wall(n()) },
		"boot":       func() { s.now.Boot = at(n()).Boot },
		"ε":          func() { s.syncer.timings.Skew = inSeconds(n()) },
		"may":        func() { s.may = len(words) == 1 },
		"unwatched":  func() { s.unwatched = true },
		"watched":    func() { s.unwatched = false },
		"in":         func() { s.syncer.known.invalidate() }, // doubt
		"relinquish": func() { s.syncer.relinquished = true },
		"lease":      func() { s.member.put(keyOf("ns"), leaseOf("ns", s.own(words[1:]))) },
		"edit":       func() { s.member.edit(keyOf("ns"), edit(words[1:])) },
		"event": func() { // with other content under the version that the member has
			obj := s.there()
			edit(words[1:])(obj)
			s.syncer.observe(obj)
		},
		"edited":   all("edit holder=another.client; shown"),
		"touched":  all("edit"),
		"remember": func() { s.remembered = s.there() },
		"back":     func() { s.member.set(keyOf("ns"), s.remembered) },
		"shown": func() {
			s.syncer.observe(s.there())
		},
		"gone":     func() { s.syncer.observe(nil) },
		"vanishes": func() { s.member.put(keyOf("ns"), nil) },
		"deleted":  all("vanishes; gone"),
	}
}

// own replaces the option "sameObject" by the UID of the syncer's own object.
func (s *syncerTest) own(words []string) (options []string) {
	for _, word := range words {
		options = append(options, strings.Replace(word, "sameObject", "object="+string(s.syncer.ownUID), 1))
	}
	return options
}

// expand computes the waits that depend on when a renewal is due.
func (s *syncerTest) expand(step string) string {
	before, after, found := strings.Cut(step, "firstRenewal")
	if !found {
		return step
	}
	due := due("ns", s.syncer.timings.Renew, zero).Sub(zero)
	if after != "" {
		due -= inSeconds(number(after[1:]))
	}
	return before + due.String()
}

package publish

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

// registered is the registration of a reader of all namespaces, confirmed at zero for 15 s.
func registered(name string, version int, changes ...func(*lease.Registration)) *coordinationv1.Lease {
	r := lease.Registration{Identity: name, Account: "system:serviceaccount:pods:" + name, Confirmed: zero,
		Duration: 15 * second}
	for _, change := range changes {
		change(&r)
	}
	l := &coordinationv1.Lease{}
	l.Namespace, l.Name, l.UID, l.ResourceVersion = "pods", name, types.UID(name), strconv.Itoa(version)
	if err := wire.WriteRegistration(r, l); err != nil {
		panic(err)
	}
	return l
}

func released(namespace string, epoch int64) func(*lease.Registration) {
	return func(r *lease.Registration) { r.Released = map[string]int64{namespace: epoch} }
}

func following(namespaces ...string) func(*lease.Registration) {
	return func(r *lease.Registration) { r.Namespaces = namespaces }
}

func confirmed(seconds float64) func(*lease.Registration) {
	return func(r *lease.Registration) { r.Confirmed = wall(seconds) }
}

// torn is a registration that cannot be read.
func torn(l *coordinationv1.Lease) *coordinationv1.Lease {
	l.Annotations[v1alpha1.ReaderReleasedAnnotation] = "{"
	return l
}

// listed takes in a list as of a version.
func (r *acks) listed(version int, ls ...*coordinationv1.Lease) {
	asked := r.asked
	r.listedAfter(at(0), asked, version, ls...)
}

func (r *acks) listedAfter(now lease.Reading, asked, version int, ls ...*coordinationv1.Lease) {
	var items []coordinationv1.Lease
	for _, l := range ls {
		items = append(items, *l)
	}
	r.observeList(items, strconv.Itoa(version), asked, now)
}

// playAcks runs the steps of a script: ask, list and list-before (a list that was begun before the question) with a
// version, see, and gone. "at" sets both clocks, "wall" one of them, and "ε" the ε of registrations. A reader is
// written as in "a@1 released=20": its name, its version, and what it has released. playAcks returns the last time.
func (r *acks) playAcks(script string) lease.Reading {
	now := at(0)
	for step := range strings.SplitSeq(script, "; ") {
		verb, rest, _ := strings.Cut(step, " ")
		version, readers, _ := strings.Cut(rest, ": ")
		switch verb {
		case "ask":
			r.ask(keyOf("ns"), 20)
		case "see":
			r.observe(readerOf(rest), now)
		case "gone":
			r.gone(types.UID(rest))
		case "at":
			now = at(seconds(rest))
		case "wall":
			now.Wall = wall(seconds(rest))
		case "ε":
			r.skew = time.Duration(seconds(rest) * float64(second))
		default:
			var all []*coordinationv1.Lease
			for reader := range strings.SplitSeq(readers, ", ") {
				if reader != "" {
					all = append(all, readerOf(reader))
				}
			}
			n, _ := strconv.Atoi(version)
			r.listedAfter(now, r.asked-len(strings.TrimPrefix(verb, "list"))/len("-before"), n, all...)
		}
	}
	return now
}

func readerOf(text string) *coordinationv1.Lease {
	words := strings.Fields(text)
	name, version, _ := strings.Cut(words[0], "@")
	n, _ := strconv.Atoi(version)
	var changes []func(*lease.Registration)
	for _, word := range words[1:] {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "released":
			changes = append(changes, released("ns", epochOf(value)))
		case "other":
			changes = append(changes, released("other", epochOf(value)))
		case "confirmed":
			changes = append(changes, confirmed(seconds(value)))
		case "follows":
			changes = append(changes, following(value))
		}
	}
	l := registered(name, n, changes...)
	if words[len(words)-1] == "torn" {
		return torn(l)
	}
	return l
}

// Epoch 20 of ns was revoked. All readers that follow ns must have released it.
func TestAcks(t *testing.T) {
	for script, done := range map[string]bool{
		"ask; list 10: a@1 released=20, b@2 released=20": true,
		"ask; list 10: a@1 released=20, b@2":             false,
		"ask; list 10: a@1 released=19":                  false,
		"ask; list 10: a@1 other=20":                     false,
		// No reader has seen a Lease of a later epoch, so it has not acted.
		"ask; list 10: a@1 released=20, b@2 released=21":              false,
		"ask; list 10: a@1 released=2147483647; see a@11 released=20": true,
		// An empty list, and one of readers of other namespaces, decide nothing.
		"ask; list 10: ": false,
		"ask; list 10: a@1 follows=other other=20":                      false,
		"ask; list 10: a@1 released=20, b@2 follows=other":              true,
		"ask; list-before 10: a@1 released=20":                          false,
		"ask; see a@1 released=20":                                      false,
		"ask; list 10: a@1 released=20, b@2 released=20 torn":           false,
		"ask; list 10: a@1; list 20: a@12 released=20, b@11":            true,
		"ask; list 10: a@1; see a@11 released=20":                       true,
		"ask; see a@11 released=20; list 10: a@1":                       true,
		"ask; see a@11 released=20; see a@1; list 12: a@11 released=20": true,
		"see a@11 released=20; see a@1; ask; list 10: a@1":              true,
		// A registration that a watch shows to be gone has released. One that a list lacks has not.
		"ask; list 10: a@1; gone a":                    true,
		"ask; list 10: a@1; list 20: b@15 released=20": false,
		"see a@1; ask; list 20: b@15 released=20":      false,
	} {
		t.Run(script, func(t *testing.T) {
			r := newAcks()
			r.playAcks(script)
			answers := r.answered()
			if got := len(answers) == 1 && answers[0].lease == keyOf("ns") && answers[0].epoch == 20; got != done {
				t.Errorf("answered: %v, want %v", len(answers), done)
			}
			if again := r.answered(); len(again) > 0 {
				t.Error("a question was answered twice")
			}
		})
	}
}

// A registration expires, or is forgotten, ε after its end by both clocks. It was confirmed at zero for 15 s.
func TestRegistrationExpires(t *testing.T) {
	for script, expired := range map[string]bool{
		"see a@1; at 15.999":                             false,
		"see a@1; at 16":                                 true,
		"see a@1; at 15.9; wall 1000":                    false,
		"see a@1; at 1000; wall 15.9":                    false,
		"at 10; see a@1; at 25.999":                      false,
		"see a@1; at 10; see a@2; at 25":                 false,
		"at 10; see a@11 confirmed=10; see a@1; at 25.9": false,
		"at 10; see a@11 confirmed=10; see a@1; at 26":   true,
		// A registration that cannot be read counts for an hour.
		"see a@1 torn; at 3600":            false,
		"see a@1 torn; at 3601":            true,
		"see a@1 torn; at 5000; wall 3000": false,
		// A list lacks it: it may have been confirmed until then.
		"see a@1; at 10; list 10: ; at 25.9":                   false,
		"see a@1; at 10; list 10: ; at 26":                     true,
		"see a@1; at 10; list 10: ; at 1000; wall 20":          false,
		"see a@1; at 10; list 10: ; at 20; list 11: ; at 26":   true,
		"see a@1; at 1; list 10: ; at 20; list 11: a@1; at 35": false,
		"see a@11; at 10; list 10: ; at 17":                    true,
		// Beyond ε, a confirmation in the future counts for an hour.
		"ε 1; see a@1 confirmed=1; at 18":            true,
		"ε 1; see a@1 confirmed=2; at 3600":          false,
		"ε 1; see a@1 confirmed=1000000000; at 3600": false,
		"ε 1; see a@1 confirmed=1000000000; at 3602": true,
	} {
		t.Run(script, func(t *testing.T) {
			r := newAcks()
			now := r.playAcks(script)
			if got := len(r.expired(now, second)) > 0 || len(r.registrations) == 0; got != expired {
				t.Errorf("expired: %v, want %v", got, expired)
			}
		})
	}
}

func TestReadersAreNamedInOrder(t *testing.T) {
	r := newAcks()
	r.ask(keyOf("ns"), 20)
	r.listed(10, registered("b", 1), registered("a", 2), registered("c", 3, released("ns", 20)))
	r.answered()
	if got := r.cancel(types.NamespacedName{Namespace: "ns", Name: "other"}); got != nil || !r.unanswered() {
		t.Errorf("the question of another Lease was dropped: %v", got)
	}
	if got := fmt.Sprint(r.cancel(keyOf("ns"))); got != "[pods/a pods/b]" || r.unanswered() {
		t.Errorf("silent are %s", got)
	}
	var expired []string
	for _, l := range r.expired(at(100), second) {
		expired = append(expired, l.Name)
	}
	if got := fmt.Sprint(expired); got != "[a b c]" {
		t.Errorf("expired are %s", got)
	}
}

// A restored etcd gives the versions that came after its snapshot a second time.
func TestVersionThatWasUsedTwice(t *testing.T) {
	r := newAcks()
	r.observe(registered("a", 5), at(0))
	r.ask(keyOf("ns"), 20)
	again := registered("a", 5, confirmed(10))
	if same := []coordinationv1.Lease{*registered("a", 5)}; r.contradicts(same) {
		t.Error("a list that says the same contradicts")
	}
	if !r.contradicts([]coordinationv1.Lease{*again}) {
		t.Error("a list that says something else under that version does not contradict")
	}
	r.observeList([]coordinationv1.Lease{*again}, "5", r.asked, at(12))
	if dead := r.expired(at(20), second); len(dead) > 0 {
		t.Errorf("%s lives: it was confirmed at 10 s for 15 s", dead[0].Name)
	}
}

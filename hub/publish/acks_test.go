package publish

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

// playAcks runs the steps of a script: ask, list and list-before (a list that was begun before the question) with a
// version, see, and gone. "at" sets both clocks, "wall" one of them. A reader is written as in "a@1 released=20": its
// name, its version, and what it has released. ε is 1 s. playAcks returns the last time.
func (r *acks) playAcks(script string) lease.Reading {
	r.skew = second
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
			now = at(number(rest))
		case "wall":
			now.Wall = wall(number(rest))
		default:
			var all []coordinationv1.Lease
			for reader := range strings.SplitSeq(readers, ", ") {
				if reader != "" {
					all = append(all, *readerOf(reader))
				}
			}
			r.observeList(all, version, r.asked-len(strings.TrimPrefix(verb, "list"))/len("-before"), now)
		}
	}
	return now
}

// Epoch 20 of ns was revoked. All readers that follow ns must have released it.
func TestAcks(t *testing.T) {
	for script, done := range map[string]bool{
		"ask; list 10: a@1 released=20, b@2 released=20": true,
		"ask; list 10: a@1 released=20, b@2":             false,
		// No reader has seen a Lease of a later epoch, so it has not acted.
		"ask; list 10: a@1 released=20, b@2 released=21": false,
		// A list of readers of other namespaces decides nothing.
		"ask; list 10: a@1 follows=other other=20":            false,
		"ask; list-before 10: a@1 released=20":                false,
		"ask; list 10: a@1 released=20, b@2 released=20 torn": false,
		"ask; list 10: a@1; list 20: a@12 released=20, b@11":  true,
		"see a@11 released=20; see a@1; ask; list 10: a@1":    true,
		// A registration that a watch shows to be gone has released. One that a list lacks has not.
		"ask; list 10: a@1; gone a":                    true,
		"ask; list 10: a@1; list 20: b@15 released=20": false,
	} {
		t.Run(script, func(t *testing.T) {
			r := Readers{acks: newAcks()}
			r.acks.playAcks(script)
			if answers := r.acks.answered(); slices.Equal(answers, []string{"ns"}) != done {
				t.Errorf("answered: %q, want %v", answers, done)
			}
			if got := r.released(keyOf("ns")) == 20; got != done || r.released(types.NamespacedName{Namespace: "ns"}) != 0 {
				t.Errorf("released: %v, want %v, and that of no other Lease", got, done)
			}
			if again := r.acks.answered(); len(again) > 0 {
				t.Error("a question was answered twice")
			}
		})
	}
}

// A registration expires, or is forgotten, ε after its end by both clocks. It was confirmed at zero for 15 s.
func TestRegistrationExpires(t *testing.T) {
	for script, expired := range map[string]bool{
		"see a@1; at 16":                 true,
		"see a@1; at 1000; wall 15.9":    false,
		"see a@1; at 10; see a@2; at 25": false,
		// A registration that cannot be read counts for an hour.
		"see a@1 torn; at 3600":            false,
		"see a@1 torn; at 5000; wall 3000": false,
		// A list lacks it: it may have been confirmed until then.
		"see a@1; at 10; list 10: ; at 26":                     true,
		"see a@1; at 10; list 10: ; at 1000; wall 20":          false,
		"see a@1; at 10; list 10: ; at 20; list 11: ; at 26":   true,
		"see a@1; at 1; list 10: ; at 20; list 11: a@1; at 35": false,
		"see a@11; at 10; list 10: ; at 17":                    true,
		// Beyond ε, a confirmation in the future counts for an hour.
		"see a@1 confirmed=1; at 18":            true,
		"see a@1 confirmed=2; at 3600":          false,
		"see a@1 confirmed=1000000000; at 3602": true,
	} {
		t.Run(script, func(t *testing.T) {
			r := newAcks()
			now := r.playAcks(script)
			if got := len(r.expired(now)) > 0 || len(r.registrations) == 0; got != expired {
				t.Errorf("expired: %v, want %v", got, expired)
			}
		})
	}
}

func TestReadersAreNamedInOrder(t *testing.T) {
	r := newAcks()
	r.playAcks("ask; list 10: b@1, a@2, c@3 released=20")
	r.answered()
	if got := r.cancel(keyOf("other")); got != nil || !r.unanswered() {
		t.Errorf("the question of another Lease was dropped: %v", got)
	}
	if got := fmt.Sprint(r.cancel(keyOf("ns"))); got != "[pods/a pods/b]" || r.unanswered() {
		t.Errorf("silent are %s", got)
	}
	var expired []string
	for _, l := range r.expired(at(100)) {
		expired = append(expired, l.Name)
	}
	if got := fmt.Sprint(expired); got != "[a b c]" {
		t.Errorf("expired are %s", got)
	}
}

// A restored etcd gives the versions that came after its snapshot a second time.
func TestVersionThatWasUsedTwice(t *testing.T) {
	for again, contradicts := range map[string]bool{"a@5": false, "a@5 confirmed=10": true} {
		r := newAcks()
		r.playAcks("see a@5; ask")
		if got := r.contradicts([]coordinationv1.Lease{*readerOf(again)}); got != contradicts {
			t.Errorf("a list with %s contradicts a@5: %v", again, got)
		}
		r.playAcks("at 12; list 5: " + again)
		if expired := len(r.expired(at(20))) > 0; expired == contradicts {
			t.Errorf("after a list with %s it is expired: %v", again, expired)
		}
	}
}

// many returns so many registrations, which follow these namespaces.
func many(n int, follows string) (all []coordinationv1.Lease) {
	for i := range n {
		all = append(all, *readerOf(fmt.Sprintf("r-%d@1 released=20 follows=%s", i, follows)))
	}
	return all
}

// releasing returns so many registrations, each with releases of a thousand other namespaces, which take 80 kB.
func releasing(n int) (all []coordinationv1.Lease) {
	for i := range n {
		all = append(all, *registered(fmt.Sprint("r-", i), 1, func(r *lease.Registration) {
			r.Released = map[string]int64{"ns": 20}
			for i := range 1000 {
				r.Released[fmt.Sprintf("namespace-with-a-long-name-%05d", i)] = 20
			}
		}))
	}
	return all
}

func TestAboveABoundNoAnswerCounts(t *testing.T) {
	wide := "" // 47 kB
	for i := range 1000 {
		wide += fmt.Sprintf("namespace-with-a-long-name-%05d,", i)
	}
	wide += "ns"
	for name, test := range map[string]struct {
		items []coordinationv1.Lease
		full  bool
	}{
		"as many as a member may have":       {many(maxRegistrations, "ns"), false},
		"one more than a member may have":    {many(maxRegistrations+1, "ns"), true},
		"fewer bytes than a member may have": {many(160, wide), false},
		"more bytes than a member may have":  {many(240, wide), true},
		"fewer bytes of releases":            {releasing(100), false},
		"more bytes of releases":             {releasing(110), true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newAcks()
			r.ask(keyOf("ns"), 20)
			r.observeList(test.items, "20", r.asked, at(0))
			done := r.answered()
			if r.full != test.full || (len(done) == 0) != test.full {
				t.Errorf("full: %v, answered: %d", r.full, len(done))
			}
			if len(r.registrations) > maxRegistrations || r.bytes > maxRegistrationsBytes {
				t.Errorf("kept are %d, of %d bytes", len(r.registrations), r.bytes)
			}
			if r.observeList(nil, "30", r.asked, at(1)); r.full {
				t.Error("it is full after a list without any")
			}
		})
	}
}

func TestPartOfAListAnswersNothing(t *testing.T) {
	r := newAcks()
	r.ask(keyOf("ns"), 20)
	r.observePart(many(1, "ns"), at(0))
	if len(r.answered()) > 0 || !r.full {
		t.Error("a part of a list answers a question")
	}
	r.observeList(many(1, "ns"), "20", r.asked, at(0))
	if len(r.answered()) != 1 {
		t.Error("a whole list does not answer it either")
	}
}

// What a registration uses of the bounds: the fields that are kept.
func TestUseOfTheBounds(t *testing.T) {
	r := newAcks()
	one := readerOf("a@1")
	one.Labels["other"], one.Annotations["other"] = "x", strings.Repeat("x", 1000)
	r.observe(one, lease.Reading{})
	e := r.registrations[one.UID]
	if len(e.lease.Annotations)+len(e.lease.Labels) > 0 || e.lease.Spec.HolderIdentity != nil || e.bytes > 2000 {
		t.Errorf("fields are kept that nothing uses: %+v", e)
	}
	r.observe(readerOf("a@2"), at(0))
	if now := r.registrations[one.UID]; r.bytes != now.bytes || now == e {
		t.Errorf("%d bytes for one of %d", r.bytes, now.bytes)
	}
	if r.gone(one.UID); r.bytes != 0 || len(r.registrations) > 0 {
		t.Errorf("%d bytes after its deletion", r.bytes)
	}
}

// An unreadable registration delays the namespaces that it may watch, by the admission policy, and no others.
func TestUnreadableRegistrationDelaysOnlyItsNamespaces(t *testing.T) {
	for name, test := range map[string]struct {
		follows string
		waits   bool
	}{
		"of this namespace":    {"ns", true},
		"of another namespace": {"mine", false},
		"of all namespaces":    {"*", true},
	} {
		t.Run(name, func(t *testing.T) {
			bad := readerOf("bad@1 torn")
			bad.Annotations[v1alpha1.ReaderNamespacesAnnotation] = test.follows
			r := newAcks()
			r.ask(keyOf("ns"), 20)
			r.observeList([]coordinationv1.Lease{*readerOf("good@1 released=20"), *bad}, "20", r.asked, at(0))
			if waits := len(r.answered()) == 0; waits != test.waits {
				t.Errorf("waits: %v", waits)
			}
		})
	}
}

// endlessPages is a member whose lists of registrations never end.
type endlessPages struct {
	coordinationclient.LeaseInterface
	page []coordinationv1.Lease
	sent *int
}

func (e endlessPages) Leases(string) coordinationclient.LeaseInterface { return e }

func (e endlessPages) List(context.Context, metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	*e.sent++
	more := metav1.ListMeta{Continue: "more"}
	return &coordinationv1.LeaseList{ListMeta: more, Items: slices.Clone(e.page)}, nil
}

func TestPagesOfReadersAreBounded(t *testing.T) {
	large := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Annotations: map[string]string{"large": strings.Repeat("x", 1<<20)},
	}}
	for name, test := range map[string]struct {
		page []coordinationv1.Lease
		most int
	}{
		"pages of 1 MiB":             {[]coordinationv1.Lease{large}, maxRegistrationsBytes >> 20},
		"pages of 500 registrations": {many(readersPage, "ns"), maxRegistrations/readersPage + 1},
	} {
		sent := 0
		r := Readers{Options: Options{Client: endlessPages{page: test.page, sent: &sent}}}
		if _, whole, err := r.pages(t.Context()); whole || err != nil || sent != test.most {
			t.Errorf("%s: %d, want %d; whole: %v, %v", name, sent, test.most, whole, err)
		}
	}
}

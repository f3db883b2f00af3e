package publish

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

// registered is the registration of a reader of all namespaces, confirmed at zero for 15 s.
func registered(name string, version int, changes ...func(*lease.Registration)) *coordinationv1.Lease {
	r := lease.Registration{Identity: name, Account: "system:serviceaccount:pods:" + name, Confirmed: zero, Duration: 15 * second}
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
	r.listedAfter(asked, version, ls...)
}

func (r *acks) listedAfter(asked, version int, ls ...*coordinationv1.Lease) {
	var items []coordinationv1.Lease
	for _, l := range ls {
		items = append(items, *l)
	}
	r.observeList(items, strconv.Itoa(version), asked, at(0))
}

// Epoch 20 of ns was revoked; all who follow it must have released it.
func TestAcks(t *testing.T) {
	for name, test := range map[string]struct {
		do   func(*acks)
		done bool
	}{
		"all have released": {func(r *acks) {
			r.ask(keyOf("ns"), 20)
			r.listed(10, registered("a", 1, released("ns", 20)), registered("b", 2, released("ns", 20)))
		}, true},
		"a release of a later epoch is nobody's who has read a Lease": {func(r *acks) {
			r.ask(keyOf("ns"), 20)
			r.listed(10, registered("a", 1, released("ns", 20)), registered("b", 2, released("ns", 21)))
		}, false},
		"until the reader itself says what it has released": {func(r *acks) {
			r.ask(keyOf("ns"), 20)
			r.listed(10, registered("a", 1, released("ns", math.MaxInt32)))
			r.observe(registered("a", 11, released("ns", 20)), at(0))
		}, true},
		"one has not": {func(r *acks) {
			r.ask(keyOf("ns"), 20)
			r.listed(10, registered("a", 1, released("ns", 20)), registered("b", 2))
		}, false},
		"a release of an earlier epoch is none": {func(r *acks) {
			r.ask(keyOf("ns"), 20)
			r.listed(10, registered("a", 1, released("ns", 19)))
		}, false},
		"nor is one of another namespace": {func(r *acks) {
			r.ask(keyOf("ns"), 20)
			r.listed(10, registered("a", 1, released("other", 20)))
		}, false},
		"an empty list decides nothing": {func(r *acks) {
			r.ask(keyOf("ns"), 20)
			r.listed(10)
		}, false},
		"nor does a list of those that follow other namespaces": {func(r *acks) {
			r.ask(keyOf("ns"), 20)
			r.listed(10, registered("a", 1, following("other"), released("other", 20)))
		}, false},
		"those that follow other namespaces need not release": {func(r *acks) {
			r.ask(keyOf("ns"), 20)
			r.listed(10, registered("a", 1, released("ns", 20)), registered("b", 2, following("other")))
		}, true},
		"a list that was begun before the question decides nothing": {func(r *acks) {
			before := r.asked
			r.ask(keyOf("ns"), 20)
			r.listedAfter(before, 10, registered("a", 1, released("ns", 20)))
		}, false},
		"nor do registrations that a watch shows": {func(r *acks) {
			r.ask(keyOf("ns"), 20)
			r.observe(registered("a", 1, released("ns", 20)), at(0))
		}, false},
		"a registration that cannot be read has released nothing": {func(r *acks) {
			r.ask(keyOf("ns"), 20)
			r.listed(10, registered("a", 1, released("ns", 20)), torn(registered("b", 2, released("ns", 20))))
		}, false},
		"whoever registers after the list need not release": {func(r *acks) {
			r.ask(keyOf("ns"), 20)
			r.listed(10, registered("a", 1))
			r.listed(20, registered("a", 12, released("ns", 20)), registered("b", 11))
		}, true},
		"a watch tells of releases": {func(r *acks) {
			r.ask(keyOf("ns"), 20)
			r.listed(10, registered("a", 1))
			r.observe(registered("a", 11, released("ns", 20)), at(0))
		}, true},
		"even before the list": {func(r *acks) {
			r.ask(keyOf("ns"), 20)
			r.observe(registered("a", 11, released("ns", 20)), at(0))
			r.listed(10, registered("a", 1))
		}, true},
		"an older version than the one that is known takes nothing back": {func(r *acks) {
			r.ask(keyOf("ns"), 20)
			r.observe(registered("a", 11, released("ns", 20)), at(0))
			r.observe(registered("a", 1), at(0))
			r.listed(12, registered("a", 11, released("ns", 20)))
		}, true},
		"nor one that comes before anybody asks": {func(r *acks) {
			r.observe(registered("a", 11, released("ns", 20)), at(0))
			r.observe(registered("a", 1), at(0))
			r.ask(keyOf("ns"), 20)
			r.listed(10, registered("a", 1))
		}, true},
		"a registration whose end a watch shows has released": {func(r *acks) {
			r.ask(keyOf("ns"), 20)
			r.listed(10, registered("a", 1))
			r.gone("a")
		}, true},
		"one that is merely missing from a list has not": {func(r *acks) {
			r.ask(keyOf("ns"), 20)
			r.listed(10, registered("a", 1))
			r.listed(20, registered("b", 15, released("ns", 20)))
		}, false},
		"not even from the first list": {func(r *acks) {
			r.observe(registered("a", 1), at(0))
			r.ask(keyOf("ns"), 20)
			r.listed(20, registered("b", 15, released("ns", 20)))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newAcks()
			test.do(&r)
			done := r.answered()
			if got := len(done) == 1 && done[0].lease == keyOf("ns") && done[0].epoch == 20; got != test.done || len(done) > 1 {
				t.Errorf("answered: %v, want %v", len(done), test.done)
			}
			if again := r.answered(); len(again) > 0 {
				t.Error("a question was answered twice")
			}
		})
	}
}

func TestAcksNameTheSilent(t *testing.T) {
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
}

// A registration that was confirmed at zero for 15 s, with an ε of 1 s.
func TestAcksKnowTheExpired(t *testing.T) {
	for name, test := range map[string]struct {
		obj  *coordinationv1.Lease
		seen float64
		now  lease.Reading
		want []string
	}{
		"not before its end":                                                {registered("a", 1), 0, at(15), nil},
		"nor before ε is over too":                                          {registered("a", 1), 0, at(15.9), nil},
		"then it is":                                                        {registered("a", 1), 0, at(16), []string{"a"}},
		"a wall clock stepped forward kills nobody":                         {registered("a", 1), 0, lease.Reading{Wall: wall(1000), Boot: at(15.9).Boot}, nil},
		"nor does one that was wrong when it was first seen":                {registered("a", 1), 10, at(25.9), nil},
		"nor one stepped back":                                              {registered("a", 1), 0, lease.Reading{Wall: wall(15.9), Boot: at(1000).Boot}, nil},
		"one confirmed in the future lives":                                 {registered("a", 1, confirmed(1000)), 0, at(500), nil},
		"one that cannot be read is kept for the longest that there is":     {torn(registered("a", 1)), 0, at(3600), nil},
		"and no longer, so that nobody blocks a namespace for ever with it": {torn(registered("a", 1)), 0, at(3601), []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newAcks()
			r.observe(test.obj, at(test.seen))
			var got []string
			for _, l := range r.expired(test.now, second) {
				got = append(got, l.Name)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("dead are %v, want %v", got, test.want)
			}
		})
	}
}

// An event that comes late shows an earlier confirmation.
func TestAcksTakeNobodyForExpiredByAnOlderVersion(t *testing.T) {
	r := newAcks()
	r.observe(registered("a", 11, confirmed(10)), at(10))
	r.observe(registered("a", 1), at(10))
	for _, test := range []struct {
		seconds float64
		dead    int
	}{{25.9, 0}, {26, 1}} {
		if dead := r.expired(at(test.seconds), second); len(dead) != test.dead || test.dead > 0 && dead[0].ResourceVersion != "11" {
			t.Errorf("after %v s: %d are dead, want %d, confirmed at 10 s for 15 s", test.seconds, len(dead), test.dead)
		}
	}
}

// A restored etcd gives the versions that came after its snapshot a second time.
func TestAcksKnowAVersionThatWasUsedTwice(t *testing.T) {
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

// One that is missing may have been confirmed until it was missed.
func TestAcksForgetTheMissing(t *testing.T) {
	r := newAcks()
	r.observe(registered("a", 1), at(0))
	r.observeList(nil, "10", 0, at(10))
	for _, test := range []struct {
		seconds float64
		known   int
	}{{25.9, 1}, {26, 0}} {
		if dead := r.expired(at(test.seconds), second); len(dead) > 0 || len(r.registrations) != test.known {
			t.Errorf("after %v s: %d dead, %d known", test.seconds, len(dead), len(r.registrations))
		}
	}
}

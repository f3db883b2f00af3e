package publish

import (
	"fmt"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

func byAccount(account string) func(*lease.Registration) {
	return func(r *lease.Registration) { r.Account = account }
}

// nonsense has a registration say something that no registration says, besides its namespaces.
func nonsense(l *coordinationv1.Lease, names string) *coordinationv1.Lease {
	l.Annotations[v1alpha1.ReaderReleasedAnnotation] = "nonsense"
	l.Annotations[v1alpha1.ReaderNamespacesAnnotation] = names
	return l
}

func many(n int, account string) (all []coordinationv1.Lease) {
	for i := range n {
		all = append(all, *registered(fmt.Sprintf("%s-%d", account, i), 1, byAccount(account), released("ns", 20)))
	}
	return all
}

func TestAboveABoundNoAnswerCounts(t *testing.T) {
	naming := func(n int, accounts ...string) (all []coordinationv1.Lease) { // some 47 kB each
		wide := following(append(names(1000), "ns")...)
		for _, a := range accounts {
			for i := range n {
				all = append(all, *registered(fmt.Sprint(a, i), 1, wide, byAccount(a), released("ns", 20)))
			}
		}
		return all
	}
	for name, test := range map[string]struct {
		items []coordinationv1.Lease
		full  bool
	}{
		"as many as an account may have":              {many(maxOfAccount, "a"), false},
		"one more":                                    {many(maxOfAccount+1, "a"), true},
		"one more of another account":                 {append(many(maxOfAccount, "a"), many(1, "b")...), false},
		"as many as a member may have":                {concat(500, "a", "b", "c", "d"), false},
		"one more than that":                          {concat(500, "a", "b", "c", "d", "e")[:MaxRegistrations+1], true},
		"fewer, that name many namespaces each":       {naming(80, "a"), false},
		"more bytes than an account may have":         {naming(120, "a"), true},
		"as many bytes, of two accounts":              {naming(80, "a", "b"), false},
		"more bytes than a member may have, of three": {naming(80, "a", "b", "c"), true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newAcks()
			r.ask(keyOf("ns"), 20)
			r.observeList(test.items, "20", r.asked, at(0))
			done := r.answered()
			if (r.full != "") != test.full || (len(done) == 0) != test.full {
				t.Errorf("full: %q, answered: %d", r.full, len(done))
			}
			if u := r.used[all]; u.registrations != len(r.registrations) || u.registrations > MaxRegistrations ||
				u.bytes > maxRegistrationsBytes {
				t.Errorf("%+v of %d", u, len(r.registrations))
			}
			if r.observeList(nil, "30", r.asked, at(1)); r.full != "" {
				t.Error("it is full after a list without any")
			}
		})
	}
}

func concat(n int, accounts ...string) (all []coordinationv1.Lease) {
	for _, a := range accounts {
		all = append(all, many(n, a)...)
	}
	return all
}

func names(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("namespace-with-a-long-name-%05d", i))
	}
	return all
}

func TestPartOfAListAnswersNothing(t *testing.T) {
	r := newAcks()
	r.ask(keyOf("ns"), 20)
	r.observePart(many(1, "a"), at(0))
	if len(r.answered()) > 0 || r.full == "" {
		t.Error("it did")
	}
	r.observeList(many(1, "a"), "20", r.asked, at(0))
	if len(r.answered()) != 1 {
		t.Error("a whole list does not answer it either")
	}
}

func TestDeletedRegistrationUsesNoBound(t *testing.T) {
	r := newAcks()
	one := registered("a", 1)
	r.observe(one, at(0))
	r.observe(registered("a", 2), at(0))
	if u := r.used[all]; u.registrations != 1 {
		t.Errorf("%+v for one", u)
	}
	r.gone(one.UID)
	if len(r.used) > 0 || len(r.registrations) > 0 {
		t.Errorf("%+v", r.used)
	}
}

// Whoever writes nonsense holds up the namespaces that it may watch, as the admission policy has it, and no others.
func TestUnreadableRegistrationDelaysOnlyItsNamespaces(t *testing.T) {
	for name, test := range map[string]struct {
		names string
		asked string
		waits bool
	}{
		"its own namespace":            {"mine", "mine", true},
		"another one":                  {"mine", "ns", false},
		"all, if it names all":         {"*", "ns", true},
		"all, if its names are broken": {"Mine!", "ns", true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newAcks()
			r.ask(keyOf(test.asked), 20)
			r.observeList([]coordinationv1.Lease{
				*registered("good", 1, released(test.asked, 20)), *nonsense(registered("bad", 1), test.names),
			}, "20", r.asked, at(0))
			if waits := len(r.answered()) == 0; waits != test.waits {
				t.Errorf("waits: %v", waits)
			}
		})
	}
}

func TestOnlyUsedFieldsOfARegistrationAreKept(t *testing.T) {
	l := registered("a", 1)
	l.Labels["other"], l.Annotations["other"] = "x", strings.Repeat("x", 1000)
	r := newAcks()
	r.observe(l, lease.Reading{})
	e := r.registrations[l.UID]
	if len(e.lease.Annotations)+len(e.lease.Labels) > 0 || e.lease.Spec.HolderIdentity != nil || e.bytes > 2000 {
		t.Errorf("%+v", e)
	}
}

func TestLongTextsOfARegistrationAreCut(t *testing.T) {
	text := strings.Repeat("x", longestText+1)
	kept, err := SlimRegistration(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": text}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &text},
	})
	slim, ok := kept.(*coordinationv1.Lease)
	if err != nil || !ok || len(slim.Annotations["a"]) != longestText || len(*slim.Spec.HolderIdentity) != longestText {
		t.Errorf("%v", err)
	}
}

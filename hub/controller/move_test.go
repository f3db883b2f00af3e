package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/publish"
)

func TestWhoseRecord(t *testing.T) {
	c := New(Options{HubID: "this"})
	marked := func(mark string) *v1alpha1.NamespaceLeader {
		return &v1alpha1.NamespaceLeader{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.HubAnnotation: mark}}}
	}
	for name, test := range map[string]struct {
		record    *v1alpha1.NamespaceLeader
		elsewhere bool
	}{
		"there is none":                    {nil, false},
		"one from before there were marks": {&v1alpha1.NamespaceLeader{}, false},
		"one of this hub":                  {marked("this"), false},
		"one of another hub":               {marked("another"), true},
		"one that this hub has let go of":  {marked(""), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.fromElsewhere(test.record); got != test.elsewhere {
				t.Errorf("from elsewhere: %v, want %v", got, test.elsewhere)
			}
		})
	}
}

// Rule 8: a record is this hub's once the leader's copy is or, where nobody leads, every copy.
func TestTaken(t *testing.T) {
	member := func(name string, changes ...func(*memberView)) memberView {
		m := memberView{
			Member: fleet.Member{Key: fleet.Key{Fleet: "fleet", Name: name}}, takesPart: true, isRead: true,
			publisher: publish.New(publish.Options{}), namespace: &corev1.Namespace{},
			facts: publish.Facts{Marked: true, InPlace: true},
		}
		for _, change := range changes {
			change(&m)
		}
		return m
	}
	unmarked := func(m *memberView) { m.facts.Marked = false }
	misplaced := func(m *memberView) { m.facts.InPlace = false }
	unread := func(m *memberView) { m.isRead = false }
	outside := func(m *memberView) { m.takesPart = false }
	bare := func(m *memberView) { m.namespace = nil }
	going := func(m *memberView) { m.namespace.Status.Phase = corev1.NamespaceTerminating }
	leading := election.Record{Leader: "east", Phase: election.Leading, Epoch: 20}
	vacant := election.Record{Phase: election.Vacant, Reason: reason.Moved, Epoch: 20}
	for name, test := range map[string]struct {
		record  election.Record
		members []memberView
		want    bool
	}{
		"the leader's copy is, whatever the others are": {leading, []memberView{member("east"), member("west", unmarked), member("south", unread)}, true},
		"the leader's copy is not":                      {leading, []memberView{member("east", unmarked), member("west")}, false},
		"the leader's copy is of another term":          {leading, []memberView{member("east", misplaced), member("west")}, false},
		"the leader is not there":                       {leading, []memberView{member("west")}, false},
		"nobody leads, and all copies are":              {vacant, []memberView{member("east"), member("west")}, true},
		"nobody leads, and one is not":                  {vacant, []memberView{member("east"), member("west", unmarked)}, false},
		"nobody leads, and one says something else":     {vacant, []memberView{member("east"), member("west", misplaced)}, false},
		"nobody leads, and one was not read":            {vacant, []memberView{member("east"), member("west", unread)}, false},
		"one that takes no part does not count":         {vacant, []memberView{member("east"), member("west", unread, outside)}, true},
		"nor one without the namespace":                 {vacant, []memberView{member("east"), member("west", bare, unmarked)}, true},
		"nor one where it is going away":                {vacant, []memberView{member("east"), member("west", going, unmarked)}, true},
		"nobody ever led, and there are no copies": {
			election.Record{Phase: election.Vacant, Reason: reason.Moved}, []memberView{member("east", unmarked)}, true,
		},
		"nobody leads for another reason: then nothing was taken": {
			election.Record{Phase: election.Vacant, Reason: reason.NoCandidate, Epoch: 20}, []memberView{member("east")}, false,
		},
		"a lost record": {election.Record{}, []memberView{member("east")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := &view{members: test.members, state: election.State{Record: test.record}}
			if got := v.taken(); got != test.want {
				t.Errorf("taken: %v, want %v", got, test.want)
			}
		})
	}
}

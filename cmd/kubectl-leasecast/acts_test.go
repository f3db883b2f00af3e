package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub"
)

// elected is the Lease of the hub's election.
func elected(renewed time.Duration) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "leasecast-system", Name: hub.ElectionName},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("hub-a"), RenewTime: micro(renewed), LeaseDurationSeconds: ptr.To[int32](15),
		},
	}
}

// run runs a command line against the objects of a snapshot and others. No hub can be asked for its cases.
func run(s *snapshot, others []client.Object, args ...string) (out string, err error) {
	objects := others
	for i := range s.clusters {
		objects = append(objects, &s.clusters[i])
	}
	for i := range s.policies {
		objects = append(objects, &s.policies[i])
	}
	for i := range s.records {
		objects = append(objects, &s.records[i])
	}
	var text bytes.Buffer
	p := newPlugin(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &text, ErrOut: &text})
	p.now = func() time.Time { return now }
	p.connect = func() (client.WithWatch, string, error) {
		return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), s.fleet, nil
	}
	c := p.command("kubectl-leasecast")
	c.SetArgs(append([]string{"--kubeconfig=/dev/null", "--server=http://127.0.0.1:1"}, args...))
	err = c.Execute()
	return text.String(), err
}

// An operator who believes that no hub is at work takes an act for harmless.
func TestAnActSaysWhetherTheHubIsAtWork(t *testing.T) {
	const gone, unknown = "NOT AT WORK", "not known whether the hub is at work"
	for name, test := range map[string]struct {
		others []client.Object
		words  []string
	}{
		"the hub has renewed its election": {[]client.Object{elected(time.Second)}, nil},
		"the hub's election has run out":   {[]client.Object{elected(time.Minute)}, []string{gone}},
		"the namespace has no election": {nil,
			[]string{unknown, "there is no Lease leasecast-system/", "--hub-namespace is another one"}},
	} {
		out, err := run(well(leading("shop", "east")), test.others, "drain", "east", "--until=2h", "--yes")
		if err != nil || !strings.Contains(out, "east is drained until 2026-03-01T14:00:00Z.") {
			t.Errorf("%s: %v: %s", name, err, out)
		}
		for _, word := range test.words {
			if !strings.Contains(out, word) {
				t.Errorf("%s: %q is missing in %s", name, word, out)
			}
		}
		for _, word := range []string{gone, unknown} {
			if strings.Contains(out, word) && (test.words == nil || test.words[0] != word) {
				t.Errorf("%s: it says %q: %s", name, word, out)
			}
		}
	}
}

// A retired record keeps the name of its last leader, for up to a day.
func TestADrainWaitsForTheNamespacesThatItMoves(t *testing.T) {
	set := func(state v1alpha1.RecordState, next string) func(*v1alpha1.NamespaceLeader) {
		return func(r *v1alpha1.NamespaceLeader) { r.Spec.State, r.Spec.Next = state, next }
	}
	for name, test := range map[string]struct {
		r    v1alpha1.NamespaceLeader
		done bool
		left string
	}{
		"it leads":              {leading("shop", "east"), false, "1 namespaces are left to move"},
		"another Cluster leads": {leading("shop", "west"), true, "0 namespaces are left to move"},
		"its term ends": {leading("shop", "east", set(v1alpha1.StateEnding, "west")), false,
			"1 namespaces are left to move"},
		"no other may lead": {leading("shop", "east", set(v1alpha1.StateLeading, "")), false,
			"1 namespaces are left to move; no other Cluster may lead 1 of them"},
		"the record is retired": {leading("shop", "east", set(v1alpha1.StateRetired, "")), true,
			"0 namespaces are left to move"},
	} {
		if done, left, err := leadsNothing("east")(well(test.r)); done != test.done || left != test.left || err != nil {
			t.Errorf("%s: %t, %q, %v", name, done, left, err)
		}
	}
}

// An act whose end cannot be awaited refuses --wait: a script would go on too early. Its outcomes are not
// shown, so it does not ask the hub for them, which may be away in an incident.
func TestOnlyActsThatShowOutcomesAskTheHubAndWait(t *testing.T) {
	asked := atomic.Bool{}
	hub := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Store(true) }))
	t.Cleanup(hub.Close)
	for name, test := range map[string]struct {
		args   []string
		waited bool
	}{
		"drain":         {[]string{"drain", "east", "--until=2h"}, true},
		"move":          {[]string{"move", "shop", "west"}, true},
		"fence-cluster": {[]string{"fence-cluster", "east"}, true},
		"undrain":       {[]string{"undrain", "east"}, false},
		"freeze":        {[]string{"freeze", "shops", "--until=2h"}, false},
		"unfreeze":      {[]string{"unfreeze", "shops"}, false},
		"rebalance":     {[]string{"rebalance", "shops"}, false},
	} {
		for _, flag := range []string{"--wait", "--timeout=1ms"} {
			_, err := run(well(leading("shop", "east")), nil, append(test.args, flag)...) // without a yes nothing changes
			refused := err != nil && strings.Contains(err.Error(), "unknown flag")
			if refused == test.waited || err == nil {
				t.Errorf("%s %s: %v", name, flag, err)
			}
		}
		asked.Store(false)
		_, _ = run(well(leading("shop", "east")), nil, append(test.args, "--server="+hub.URL)...)
		if asked.Load() != test.waited {
			t.Errorf("%s asks the hub: %t", name, !test.waited)
		}
	}
}

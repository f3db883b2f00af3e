package fleet

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/health"
)

func newTestMember(t *testing.T) (*member, *clocktest.Hand) {
	t.Helper()
	c := clocktest.NewHand(clocktest.Start)
	_, m := newTestProvider(c)
	return m, c
}

// newTestProvider returns a provider with one member.
func newTestProvider(c lease.Clock) (*Provider, *member) {
	p := New(Options{HubID: "h", MayWrite: func() bool { return true }, Clock: c})
	m := newMember(p.shared, testKey)
	p.add(m)
	announced(m)
	return p, m
}

// announced returns how many members subscribers would be notified of, and empties the queue.
func announced(m *member) (n int) {
	for ; m.changed.Len() > 0; n++ {
		k, _ := m.changed.Get()
		m.changed.Done(k)
	}
	return n
}

// connectionOf returns the connection of a member, and ends it when the test is over.
func connectionOf(t *testing.T, m *member) *connection {
	t.Helper()
	c := &connection{installer: installer{member: m}, lifetime: t.Context()}
	t.Cleanup(c.close)
	return c
}

func TestPausesOfTheHubAreNotHeldAgainstMembers(t *testing.T) {
	thresholds := health.Thresholds{UnreachableAfter: 10 * time.Second}
	for name, tc := range map[string]struct {
		look time.Duration // how often the process looks at its clock
		kind health.Kind   // what nobody answers
		want health.State
	}{
		"a read was not answered, and the hub was awake for a minute":   {pauseCheckEvery, health.Read, health.Unhealthy},
		"a read was not answered, and the hub was asleep for a minute":  {time.Minute, health.Read, health.Healthy},
		"a write was not answered, and the hub was awake for a minute":  {pauseCheckEvery, health.Write, health.Unhealthy},
		"a write was not answered, and the hub was asleep for a minute": {time.Minute, health.Write, health.Healthy},
	} {
		t.Run(name, func(t *testing.T) {
			m, c := newTestMember(t)
			m.observe(health.Observation{Kind: health.Read, At: c.Now(), OK: true})
			m.observe(health.Observation{Kind: health.Write, At: c.Now(), OK: true})
			c.Advance(500 * time.Millisecond)
			sent := c.Now() // answered by nobody, because nobody is awake to hear it
			for slept := time.Duration(0); slept < time.Minute; slept += tc.look {
				c.Advance(tc.look)
				if tc.look < pauseLeast {
					m.pauses.notice(c.Now())
				}
			}
			m.observe(health.Observation{Kind: tc.kind, At: sent, Reason: reason.Unreachable})
			if got := m.verdict(thresholds); got.State != tc.want {
				t.Errorf("%+v, want %v", got, tc.want)
			}
		})
	}
}

func TestMayLeave(t *testing.T) {
	labelled := map[string]string{v1alpha1.PriorityLabel: "1"}
	for name, tc := range map[string]struct {
		state state
		after time.Duration // since the Cluster was found to be gone
		want  bool
	}{
		"it takes part":                       {state{spec: spec{labels: labelled}}, 0, false},
		"it takes part, whatever anyone said": {state{spec: spec{labels: labelled}, leaving: true}, 0, false},
		"pinned, not forgotten":               {state{spec: spec{pin: "u"}, uid: "u"}, 0, false},
		"pinned and forgotten":                {state{spec: spec{pin: "u"}, uid: "u", leaving: true}, 0, true},
		"neither label nor pin":               {state{uid: "u"}, 0, true},
		"gone, never reached":                 {state{spec: spec{labels: labelled, gone: true}}, 0, true},
		"gone, known": {
			state{spec: spec{labels: labelled, gone: true}, uid: "u"}, ForgottenAfter - 1, false,
		},
		"gone, pinned": {
			state{spec: spec{labels: labelled, gone: true, pin: "u"}}, ForgottenAfter - 1, false,
		},
		"gone for too long": {
			state{spec: spec{labels: labelled, gone: true}, uid: "u"}, ForgottenAfter, true,
		},
		"gone and forgotten": {
			state{spec: spec{labels: labelled, gone: true}, uid: "u", leaving: true}, 0, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, clock := newTestMember(t)
			c := connectionOf(t, m)
			tc.state.spec.goneAt = clock.Now().Boot
			if tc.after > 0 && c.mayLeave(tc.state, clock.Now()) {
				t.Error("it may leave at once")
			}
			clock.Advance(tc.after)
			if got := c.mayLeave(tc.state, clock.Now()); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestProblemIsTheGravest(t *testing.T) {
	failed := untested().Observe(health.Observation{Kind: health.Read, Reason: reason.Unreachable, Message: "no answer"})
	everything := state{
		spec:       spec{gone: true, deleting: true},
		uid:        "u",
		contact:    Problem{Reason: reason.WrongCluster},
		kubeconfig: Problem{Reason: reason.InvalidKubeconfig},
		tracks:     failed,
		unheld:     [2]string{"too many Namespaces", "too many Leases"},
	}
	others := map[string]Key{"u": {Fleet: "prod", Name: "other"}}
	// Each step takes away the gravest.
	s := everything
	for _, step := range []struct {
		want   reason.Reason
		remove func()
	}{
		{reason.Gone, func() { s.spec.gone = false }},
		{reason.Deleting, func() { s.spec.deleting = false }},
		{reason.WrongCluster, func() { s.contact = Problem{Reason: reason.Forbidden} }},
		{reason.DuplicateCluster, func() { others = map[string]Key{"u": testKey} }},
		{reason.InvalidKubeconfig, func() { s.kubeconfig = Problem{} }},
		{reason.Forbidden, func() { s.contact = Problem{} }},
		{reason.Unreachable, func() { s.tracks = nil }},
		{reason.NeverReached, func() { s.cluster = struct{ cluster.Cluster }{} }},
		{reason.TooManyObjects, func() { s.unheld[0] = "" }},
		{reason.TooManyObjects, func() { s.unheld[1] = "" }},
		{"", func() {}},
	} {
		if got := s.problem(testKey, others); got.Reason != step.want {
			t.Errorf("got %v, want %v", got, step.want)
		}
		step.remove()
	}
}

// What the hub cannot do beside its probes leaves a connected member reachable.
func TestAMemberIsUnreachableWhereTheLastProbeIsNotAnswered(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*connection)
		want   bool
	}{
		"the hub's role is not repaired": {func(c *connection) {
			c.fail(t.Context(), errors.New("a webhook is down"))
		}, false},
		"a newer kubeconfig is not used": {func(c *connection) {
			c.reject(state{target: &transport.Target{}}, Problem{Reason: reason.Unreachable})
		}, false},
		"the last probe is not answered": {func(c *connection) {
			c.observe(health.Observation{Kind: health.Read, At: c.clock.Now(), Reason: reason.Unreachable})
		}, true},
		"the last probe is refused": {func(c *connection) {
			c.observe(health.Observation{Kind: health.Read, At: c.clock.Now(), Reason: reason.Forbidden})
		}, false},
	} {
		m, _ := newTestMember(t)
		m.change(func(s *state) { s.cluster = struct{ cluster.Cluster }{} })
		m.observe(health.Observation{Kind: health.Read, At: m.clock.Now(), OK: true})
		test.change(connectionOf(t, m))
		if is := m.snapshot(nil); is.Unreachable != test.want || is.Problem.Reason == "" {
			t.Errorf("%s: unreachable %v, problem %s", name, is.Unreachable, is.Problem.Reason)
		}
	}
}

func TestWhatIsNotSeenOfOneKindIsShownUntilAllOfThatKindIs(t *testing.T) {
	m, _ := newTestMember(t)
	m.change(func(s *state) { s.cluster = struct{ cluster.Cluster }{} })
	namespaces, leases, tooMany := m.holds(0), m.holds(1), errors.New("too many")
	for _, step := range []struct {
		do   func()
		want reason.Reason
	}{
		{func() { namespaces(tooMany) }, reason.TooManyObjects},
		{func() { leases(tooMany) }, reason.TooManyObjects},
		{func() { leases(nil) }, reason.TooManyObjects},
		{func() { namespaces(nil) }, ""},
	} {
		step.do()
		if got := m.snapshot(nil).Problem.Reason; got != step.want {
			t.Errorf("got %q, want %q", got, step.want)
		}
	}
}

func TestSubscribersHearOfWhatTheySee(t *testing.T) {
	at := func(c *clocktest.Hand, k health.Kind, ok bool) health.Observation {
		o := health.Observation{Kind: k, At: c.Now(), OK: ok}
		if !ok {
			o.Reason, o.Message = reason.Unreachable, c.Now().Wall.String()
		}
		return o
	}
	c := clocktest.NewHand(clocktest.Start)
	p, m := newTestProvider(c)
	for _, step := range []struct {
		name string
		do   func()
		want bool
	}{
		{"the first read", func() { m.observe(at(c, health.Read, true)) }, true},
		{"the first write", func() { m.observe(at(c, health.Write, true)) }, true},
		{"more of the same", func() { m.observe(at(c, health.Write, true)) }, false},
		{"a failure", func() { m.observe(at(c, health.Write, false)) }, true},
		{"the same failure again", func() { m.observe(at(c, health.Write, false)) }, false},
		{"an answer", func() { m.observe(at(c, health.Write, true)) }, true},
		{"a new label", func() { m.setSpec(spec{labels: map[string]string{"a": "b"}}) }, true},
		{"the same objects", func() { m.setSpec(spec{labels: map[string]string{"a": "b"}}) }, false},
		{"a new problem", func() { m.change(func(s *state) { s.kubeconfig = Problem{reason.NoKubeconfig, ""} }) }, true},
		{"the Cluster is gone", func() { m.gone("") }, true},
	} {
		c.Advance(time.Second / 10)
		step.do()
		if got := announced(m) > 0; got != step.want {
			t.Errorf("%s: told %v, want %v", step.name, got, step.want)
		}
	}
	var changed []Key
	p.Subscribe(func(k Key) { changed = append(changed, k) })
	m.setSpec(spec{})
	m.changed.ShutDown()
	p.notifySubscriber(t.Context())
	if !slices.Equal(changed, []Key{testKey}) {
		t.Errorf("the subscriber was called for %v", changed)
	}
}

// A hub that stops closes all members before it gives up its election. Each call would delay that.
func TestSubscriberIsNotCalledAtTheStop(t *testing.T) {
	p := New(Options{})
	calls := 0
	p.Subscribe(func(Key) { calls++ })
	ctx, stop := context.WithCancel(t.Context())
	stop()
	for i := range 100 {
		p.changed.Add(Key{Fleet: "fleet", Name: strconv.Itoa(i)})
	}
	p.changed.ShutDown()
	if p.notifySubscriber(ctx); calls > 0 {
		t.Errorf("the subscriber was called %d times", calls)
	}
}

func TestOnlyATargetInUseIsDropped(t *testing.T) {
	access := accessTo(t, apiServer(t, nil))
	for name, isInUse := range map[string]bool{"the target in use": true, "one that was replaced before": false} {
		t.Run(name, func(t *testing.T) {
			m, _ := newTestMember(t)
			inUse := targetTo(t, access, nil)
			interrupted := false
			m.change(func(s *state) { s.target, s.interrupt = inUse, func() { interrupted = true } })
			dropped := inUse
			if !isInUse {
				dropped = targetTo(t, access, inUse)
			}
			m.drop(dropped, Problem{Reason: reason.WrongCluster})
			s := m.get()
			gone, shown := s.target == nil, s.contact.Reason == reason.WrongCluster
			if gone != isInUse || interrupted != gone || shown != gone {
				t.Errorf("in use %v, interrupted %v, %v", !gone, interrupted, s.contact)
			}
		})
	}
}

// Whoever works in a member writes into it.
func TestAMemberIsEngagedOnceItIsCertainWhichClusterItIs(t *testing.T) {
	for name, test := range map[string]struct {
		state state
		want  bool
	}{
		"it is pinned":                         {state{spec: spec{pin: "uid"}, uid: "uid"}, true},
		"it is pinned, and was not reached":    {state{spec: spec{pin: "uid"}}, false},
		"it is pinned, and is another cluster": {state{spec: spec{pin: "uid"}, uid: "other"}, false},
		"it was reached, and is not pinned":    {state{uid: "uid"}, false},
		"it moves to another hub":              {state{spec: spec{pin: "uid", moved: true}}, true},
		"it moves, and nobody knows who it is": {state{spec: spec{moved: true}}, false},
	} {
		if got := test.state.identified(); got != test.want {
			t.Errorf("%s: engaged %v, want %v", name, got, test.want)
		}
	}
}

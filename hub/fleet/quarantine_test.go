package fleet

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet/transport"
)

func TestForHowLongAMemberIsInQuarantine(t *testing.T) {
	for name, test := range map[string]struct {
		behaved     []time.Duration // between the ends of quarantines and the next ones
		least, most time.Duration   // of the last one
	}{
		"at first":                         {nil, time.Minute, 66 * time.Second},
		"twice as long if it goes on":      {[]time.Duration{time.Second}, 2 * time.Minute, 132 * time.Second},
		"at most a quarter of an hour":     {make([]time.Duration, 20), 15 * time.Minute, 17 * time.Minute},
		"as at first once it has behaved":  {[]time.Duration{0, 0, longestQuarantine}, time.Minute, 66 * time.Second},
		"longer if it has not for so long": {[]time.Duration{longestQuarantine - 1}, 2 * time.Minute, 132 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			m, c := newTestMember(t)
			m.sentTooMuch(errors.New("a flood"))
			for _, behaved := range test.behaved {
				c.Advance(m.get().quarantine.until - c.Now().Boot + behaved)
				m.sentTooMuch(errors.New("a flood"))
				m.sentTooMuch(errors.New("the same flood")) // as another request has noticed it
			}
			if lasts := m.get().quarantine.until - c.Now().Boot; lasts < test.least || lasts > test.most {
				t.Errorf("%v, want from %v to %v", lasts, test.least, test.most)
			}
		})
	}
}

func TestAMemberInQuarantineIsDisconnected(t *testing.T) {
	s := apiServer(t, nil)
	m, clock := newTestMember(t)
	m.state.spec.labels = map[string]string{v1alpha1.PriorityLabel: "1"}
	c := &connection{member: m, lifetime: t.Context()}
	t.Cleanup(c.close)
	c.use(t.Context(), targetTo(t, accessTo(t, s, "", "token"), nil))
	interrupted := false
	m.change(func(s *state) { s.interrupt = func() { interrupted = true } })
	m.sentTooMuch(errors.New("a flood"))
	if !interrupted {
		t.Error("what is under way goes on")
	}
	for range 2 { // the second look changes nothing
		wait, done := c.step(t.Context())
		now := m.get()
		if now.target != nil || done || wait < time.Minute {
			t.Errorf("it is connected: %v; looked at again in %v", now.target != nil, wait)
		}
		if p := m.problem(now, nil); p.Reason != reason.SendsTooMuch {
			t.Errorf("shown as %+v", p)
		}
	}
	clock.Advance(2 * time.Minute)
	if wait := c.enforceQuarantine(t.Context(), m.get(), clock.Now()); wait != 0 {
		t.Errorf("after its end nothing is asked of it for %v", wait)
	}
}

// Whoever is no admin of a member cannot have it disconnected.
func TestCronJobsOfTenantsDisconnectNobody(t *testing.T) {
	s := apiServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		reply(w, strings.Repeat(" ", transport.MaxTenantsBody+1))
	})
	m, _ := newTestMember(t)
	transport.Lead(targetTo(t, accessTo(t, s, "", "t"), nil), m.caches, m.renewals)
	for range 20 { // more than its meter takes
		err := Member{live: m}.CronJobs().Get().Resource("cronjobs").Do(t.Context()).Error()
		if err == nil || m.get().quarantine != nil {
			t.Fatalf("%v: %+v", err, m.get().quarantine)
		}
	}
}

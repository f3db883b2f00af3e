package fleet

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/account"
	"github.com/leasecast/leasecast/hub/fleet/transport"
)

func TestForHowLongTheAccountOfAMemberThatLeavesIsTriedToBeRemoved(t *testing.T) {
	const long = 100 * ForgottenAfter
	silence := errors.New("connection refused")
	unavailable := apierrors.NewServiceUnavailable("no etcd")
	for name, tc := range map[string]struct {
		spec  spec
		err   error
		after time.Duration
		want  bool
	}{
		"as long as it answers":                     {spec{pin: "u"}, fmt.Errorf("remove: %w", unavailable), long, true},
		"as long as it answers to a part":           {spec{pin: "u"}, errors.Join(silence, unavailable), long, true},
		"for a while where it does not answer":      {spec{pin: "u"}, silence, ForgottenAfter - 1, true},
		"not for ever where it does not answer":     {spec{pin: "u"}, silence, ForgottenAfter, false},
		"for a while where credentials count not":   {spec{pin: "u"}, apierrors.NewUnauthorized("who?"), ForgottenAfter - 1, true},
		"not for ever where credentials count not":  {spec{pin: "u"}, apierrors.NewUnauthorized("who?"), ForgottenAfter, false},
		"once where the Cluster is gone":            {spec{pin: "u", gone: true}, unavailable, 0, false},
		"once where the Cluster moves":              {spec{pin: "u", moved: true}, unavailable, 0, false},
		"once where somebody has taken the pin off": {spec{}, unavailable, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			m, clock := newTestMember(t)
			first := clock.Now()
			c := &connection{member: m, leftAt: &first}
			clock.Advance(tc.after)
			if got := c.removesAgain(state{spec: tc.spec}, tc.err, clock.Now()); got != tc.want {
				t.Errorf("again: %v, want %v", got, tc.want)
			}
		})
	}
}

func TestAMemberThatIsLeftIsNotProbedByWrites(t *testing.T) {
	m, clock := newTestMember(t)
	for leaving, want := range map[bool]bool{false: true, true: false} {
		s := state{target: &transport.Target{UID: "u"}, cluster: struct{ cluster.Cluster }{}, spec: spec{pin: "u"}, leaving: leaving}
		if got := (&probes{member: m}).mayWrite(s, clock.Now()); got != want {
			t.Errorf("leaving %v: a write is sent: %v", leaving, got)
		}
	}
}

// Nobody works there any more, and people are shown what the member has answered.
func TestAMemberThatRefusesToRemoveTheAccountIsAskedSeldom(t *testing.T) {
	var ended atomic.Bool
	s := apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method != http.MethodDelete:
			kubeSystem(w, "u")
		case strings.Contains(r.URL.Path, "/clusterroles/"):
			w.WriteHeader(http.StatusForbidden)
			reply(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no removal here"}`)
		default:
			if !ended.Load() {
				t.Errorf("%s is deleted while the manager still works by it", r.URL.Path)
			}
			reply(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
		}
	})
	m, clock := newTestMember(t)
	c := worksByAccount(t, m, accessTo(t, s, "", "admin"), account.Credentials{Token: "own"})
	m.state.spec.pin, m.state.leaving, m.state.cluster = "u", true, struct{ cluster.Cluster }{}
	c.running = &runningCluster{stop: func() { ended.Store(true) }}

	began, tries, longest := clock.Now().Boot, 0, time.Duration(0)
	for clock.Now().Boot-began < 10*time.Minute {
		pause, done := c.step(t.Context())
		if pause = c.untilAccount(pause); done || pause < leavePoll {
			t.Fatalf("forgotten: %v, tried again after %v", done, pause)
		}
		tries, longest = tries+1, max(longest, pause)
		clock.Advance(pause)
	}
	if tries > 30 || longest > leaveMost {
		t.Errorf("tried %d times, and at most %v apart", tries, longest)
	}
	if p := m.problem(m.get(), nil); p.Reason != reason.AccountLeft || !strings.Contains(p.Message, "no removal here") {
		t.Errorf("shown as %+v", p)
	}
}

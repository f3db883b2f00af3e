package fleet

import (
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

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

package command

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/leasecast/leasecast/member"
)

// Exit codes of [Check].
const (
	Leads      = 0
	LeadsNot   = 1
	CannotTell = 2
)

// Answer is the body of /leader.
type Answer struct {
	Leads  bool   `json:"leads"`
	Leader string `json:"leader"` // empty: no leader is known
	Epoch  int64  `json:"epoch"`
	// RemainingMilliseconds is how long this cluster leads on without a renewal, counted from before the request.
	RemainingMilliseconds int64  `json:"remainingMilliseconds"`
	Why                   string `json:"why,omitempty"` // why this cluster does not lead
}

// Asked answers who leads: a [member.Member].
type Asked interface {
	Term(namespace string) (member.Term, bool)
	State(namespace string) member.State
}

// ask returns the current answer.
func ask(m Asked, namespace string) Answer {
	if t, ok := m.Term(namespace); ok {
		if left := t.Remaining().Milliseconds(); left > 0 {
			return Answer{Leads: true, Leader: t.Cluster(), Epoch: t.Epoch(), RemainingMilliseconds: left}
		}
	}
	s := m.State(namespace)
	return Answer{Leader: s.Leader, Epoch: s.Epoch, Why: s.Why}
}

// Handler answers each request with who leads, so mount it at GET /leader: status 200 where this cluster leads, 503
// elsewhere, and an [Answer] in both cases.
func Handler(m Asked, namespace string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer := ask(m, namespace)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		if !answer.Leads {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(answer) // a client that has gone needs no answer
	})
}

// Check checks once whether this cluster leads. It returns [Leads], [LeadsNot] or [CannotTell], and the text to print.
// The Member must have been started.
func Check(ctx context.Context, m *member.Member, namespace string) (code int, text string) {
	if err := m.WaitForSync(ctx); err != nil {
		return CannotTell, err.Error()
	}
	a := ask(m, namespace)
	if !a.Leads {
		return LeadsNot, fmt.Sprintf("this cluster does not lead %s: %s", namespace, a.Why)
	}
	return Leads, fmt.Sprintf("%s leads %s in epoch %d for %d ms", a.Leader, namespace, a.Epoch, a.RemainingMilliseconds)
}

package fleet

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/e2e/lines"
)

const (
	auditPolicy = "audit.yaml"
	auditLog    = "audit.log"

	// auditAll has every request logged when it is answered, and a watch once more when it ends.
	auditAll = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
`
)

// writeVerbs are the verbs, as audit logs spell them, that ask for a write.
var writeVerbs = []string{"create", "update", "patch", "delete", "deletecollection"}

// Request is a request that an API server answered.
type Request struct {
	// Received is when the API server got the request, by its wall clock, which is this machine's.
	Received time.Time
	// User sent the request, or was impersonated in it. Agent is the name that the program gave itself.
	User, Agent string
	Verb, URI   string
	// Code is the HTTP status of the answer.
	Code int
}

// String describes the request.
func (r Request) String() string {
	return fmt.Sprintf("%s %s %s by %s (%s): %d", r.Received.UTC().Format("15:04:05.000000"), r.Verb, r.URI, r.User,
		r.Agent, r.Code)
}

// Writes reports whether the request asks for a write.
func (r Request) Writes() bool { return slices.Contains(writeVerbs, r.Verb) }

// Requests are the requests that the API server has answered so far, in the order of the answers. A watch is answered
// when it begins. They are logged with [Options.Audit] only.
func (s *Server) Requests() (requests []Request, err error) {
	seen := map[string]bool{}
	err = lines.Follow(s.file(auditLog)).News(func(line []byte) error {
		var event struct {
			AuditID                     string
			RequestReceivedTimestamp    metav1.MicroTime
			User, ImpersonatedUser      struct{ Username string }
			UserAgent, Verb, RequestURI string
			ResponseStatus              struct{ Code int }
		}
		if err := json.Unmarshal(line, &event); err != nil || seen[event.AuditID] {
			return err // no error: the end of a watch
		}
		seen[event.AuditID] = true
		requests = append(requests, Request{
			Received: event.RequestReceivedTimestamp.Time, Agent: event.UserAgent,
			User: cmp.Or(event.ImpersonatedUser.Username, event.User.Username),
			Verb: event.Verb, URI: event.RequestURI, Code: event.ResponseStatus.Code,
		})
		return nil
	})
	return requests, err
}

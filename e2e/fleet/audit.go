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
)

// Audit policies: every request that asks for a write, and every request, refused ones too. Each is logged when
// it is answered, and a watch once more when it ends.
const (
	auditWrites = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
- level: None
`
	auditAll = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`
)

// auditPolicy is the policy that the options ask for, empty for none.
func (o Options) auditPolicy() string {
	switch {
	case o.AuditReads:
		return auditAll
	case o.Audit:
		return auditWrites
	default:
		return ""
	}
}

// writeVerbs are the verbs, as audit logs spell them, that ask for a write.
var writeVerbs = []string{"create", "update", "patch", "delete", "deletecollection"}

// Request is what somebody asked an API server for.
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

// Writes are the requests for a write that the API server has answered so far, in the order of the
// answers. A fleet without [Options.Audit] has none.
func (s *Server) Writes() ([]Request, error) {
	requests, err := s.Requests()
	return slices.DeleteFunc(requests, func(r Request) bool { return !r.Writes() }), err
}

// Requests are all requests that the API server has answered so far, in the order of the answers; a watch
// is answered when it begins. A fleet without [Options.AuditReads] has no more than the writes.
func (s *Server) Requests() ([]Request, error) {
	requests, err := readRequests(s.file(auditLog))
	if err != nil {
		return nil, fmt.Errorf("audit log of %s: %w", s.name, err)
	}
	return requests, nil
}

func readRequests(path string) (requests []Request, err error) {
	known := map[string]bool{}
	err = lines.Follow(path).News(func(line []byte) error {
		var event struct {
			AuditID                     string
			RequestReceivedTimestamp    metav1.MicroTime
			User, ImpersonatedUser      struct{ Username string }
			UserAgent, Verb, RequestURI string
			ResponseStatus              struct{ Code int }
		}
		if err := json.Unmarshal(line, &event); err != nil {
			return err
		}
		if known[event.AuditID] {
			return nil // the end of a watch
		}
		known[event.AuditID] = true
		requests = append(requests, Request{
			Received: event.RequestReceivedTimestamp.Time, Agent: event.UserAgent,
			User: cmp.Or(event.ImpersonatedUser.Username, event.User.Username),
			Verb: event.Verb, URI: event.RequestURI, Code: event.ResponseStatus.Code,
		})
		return nil
	})
	return requests, err
}

package fleet

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	auditPolicy = "audit.yaml"
	auditLog    = "audit.log"
)

// auditWrites logs every request that asks for a write, refused ones too, when it is answered.
const auditWrites = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
- level: None
`

// Write is a request that asked an API server for a write.
type Write struct {
	// Received is when the API server got the request, by its wall clock, which is this machine's.
	Received time.Time
	// User and Agent are who asked, and what the program called itself.
	User, Agent string
	Verb, URI   string
	// Code is the HTTP status of the answer.
	Code int
}

// String tells the write to a person.
func (w Write) String() string {
	return fmt.Sprintf("%s %s %s by %s (%s): %d", w.Received.UTC().Format("15:04:05.000000"), w.Verb, w.URI, w.User, w.Agent, w.Code)
}

// Writes are the requests for a write that the API server has answered so far, in the order of the
// answers. A fleet without [Options.Audit] has none.
func (s *Server) Writes() ([]Write, error) {
	writes, err := readWrites(s.file(auditLog))
	if err != nil {
		return nil, fmt.Errorf("audit log of %s: %w", s.name, err)
	}
	return writes, nil
}

func readWrites(path string) ([]Write, error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var writes []Write
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return writes, nil // what has no end yet is still being written
		}
		if err != nil {
			return nil, err
		}
		var event struct {
			RequestReceivedTimestamp    metav1.MicroTime
			User                        struct{ Username string }
			UserAgent, Verb, RequestURI string
			ResponseStatus              struct{ Code int }
		}
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, err
		}
		writes = append(writes, Write{
			Received: event.RequestReceivedTimestamp.Time, User: event.User.Username, Agent: event.UserAgent,
			Verb: event.Verb, URI: event.RequestURI, Code: event.ResponseStatus.Code,
		})
	}
}

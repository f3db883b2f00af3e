package fleet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// auditLine is what an API server logs, as far as it matters here.
func auditLine(id, stage, verb, agent string) string {
	return `{"kind":"Event","level":"Metadata","auditID":"` + id + `","stage":"` + stage + `","requestURI":"/api","verb":"` + verb +
		`","user":{"username":"somebody"},"userAgent":"` + agent + `","responseStatus":{"code":200},` +
		`"requestReceivedTimestamp":"2025-01-01T00:00:00.000001Z","stageTimestamp":"2025-01-01T00:00:01.000000Z"}` + "\n"
}

func TestRequestsAreReadFromTheAuditLogOnceEach(t *testing.T) {
	s := &Server{name: "east", dir: t.TempDir()}
	if got, err := s.Requests(); err != nil || len(got) != 0 {
		t.Errorf("without a log there are %v, %v", got, err)
	}
	log := auditLine("1", "ResponseComplete", "get", "a") +
		auditLine("2", "ResponseStarted", "watch", "b") +
		auditLine("3", "ResponseComplete", "update", "c") +
		auditLine("2", "ResponseComplete", "watch", "b") +
		strings.TrimSuffix(auditLine("4", "ResponseComplete", "update", "d"), "\n") // being written
	must(t, os.WriteFile(filepath.Join(s.dir, auditLog), []byte(log), 0o600))
	agents := func(requests []Request) string {
		var all []string
		for _, r := range requests {
			all = append(all, r.Agent)
		}
		return strings.Join(all, "")
	}
	requests, err := s.Requests()
	if err != nil || agents(requests) != "abc" {
		t.Errorf("requests %v, %v; want those of a, b and c", requests, err)
	}
	if len(requests) > 0 && requests[0].Received.Nanosecond() != 1000 {
		t.Errorf("received at %s, want 1 µs after midnight", requests[0].Received)
	}
	if writes, err := s.Writes(); err != nil || agents(writes) != "c" {
		t.Errorf("writes %v, %v; want that of c", writes, err)
	}
	must(t, os.WriteFile(filepath.Join(s.dir, auditLog), []byte("nonsense\n"), 0o600))
	if got, err := s.Requests(); err == nil {
		t.Errorf("a log of nonsense has %v", got)
	}
}

func TestTheAuditPolicyIsWhatTheOptionsAskFor(t *testing.T) {
	for want, o := range map[string]Options{"": {}, auditWrites: {Audit: true}, auditAll: {Audit: true, AuditReads: true}} {
		if got := o.auditPolicy(); got != want {
			t.Errorf("%+v: policy %q, want %q", o, got, want)
		}
	}
}

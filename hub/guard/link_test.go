package guard_test

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasecast/leasecast/hub/guard"
)

// link connects a hub with the API server. It records what is sent, and can answer instead.
type link struct {
	next  http.RoundTripper
	fleet *regexp.Regexp // finds the policy of a fence

	mu      sync.Mutex
	sent    map[string]int // requests by what they are, as in "write shops"
	answers map[string]int // status codes by that, or by the path
}

func (l *link) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		body, _ = io.ReadAll(req.Body)
		req.Body = io.NopCloser(bytes.NewReader(body))
	}
	what := l.what(req, req.URL.Path+string(body))
	l.mu.Lock()
	l.sent[what]++
	code := cmp.Or(l.answers[what], l.answers[req.URL.Path])
	l.mu.Unlock()
	if code == 0 {
		return l.next.RoundTrip(req)
	}
	if code == lost {
		if carriedOut, err := l.next.RoundTrip(req); err == nil {
			_ = carriedOut.Body.Close()
		}
	}
	answer := http.Response{StatusCode: code, Header: http.Header{}, Body: http.NoBody, Request: req}
	if code == http.StatusCreated { // what is stored
		answer.Header.Set("Content-Type", "application/json")
		answer.Body = io.NopCloser(bytes.NewReader(body))
	}
	return &answer, nil
}

// lost is the status code of an answer in the place of the API server's, which has carried out the request.
const lost = http.StatusGatewayTimeout

func (l *link) what(req *http.Request, text string) string {
	of := "gate"
	if strings.Contains(text, "leasecast-wall-probe") {
		of = "wall"
	}
	if found := l.fleet.FindStringSubmatch(text); found != nil {
		of = found[1]
	}
	if strings.Contains(text, "leasecast-guard-probe") || strings.Contains(text, guard.Name) ||
		strings.Contains(text, guard.RegistrationsName) {
		of = "guard"
	}
	verb := map[string]string{http.MethodGet: "read ", http.MethodDelete: "remove "}[req.Method]
	switch {
	case req.URL.Query().Get("labelSelector") != "":
		return "list"
	case strings.HasSuffix(req.URL.Path, "/leases"):
		verb = "probe "
	case strings.Contains(text, guard.AnchorName+`"`), strings.HasSuffix(text, guard.AnchorName):
		of = "anchor"
	}
	if verb == "" {
		verb = "write "
	}
	return verb + of
}

// taken returns what was sent, as in "list*2, probe guard*2", and forgets it.
func (l *link) taken() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []string
	for _, what := range slices.Sorted(maps.Keys(l.sent)) {
		all = append(all, fmt.Sprintf("%s*%d", what, l.sent[what]))
	}
	clear(l.sent)
	return strings.Join(all, ", ")
}

// will has the API server answer these requests by a status code. With 0, it carries them out.
func (l *link) will(code int, what ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range what {
		l.answers[w] = code
	}
}

// linked gives the test a hub with a link, and with a clock that stands until the test sets it.
func linked(t *testing.T) (*hub, *link) {
	t.Helper()
	parallel(t)
	fleet := hubOf(t).fleet
	l := &link{
		fleet: regexp.MustCompile(`(\w+)\.` + fleet + `\.`), sent: map[string]int{}, answers: map[string]int{},
	}
	config := server.AdminConfig()
	config.ContentType = "application/json"
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		l.next = next
		return l
	})
	h := newHub(clientFor(t, config), fleet)
	h.now = func() time.Duration { return h.at }
	h.at = time.Hour
	hubs.Store(t.Name(), h)
	return h, l
}

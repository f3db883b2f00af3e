package member

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/member/pings"
)

// longestPinged is the term duration from which pings get no rarer. Shorter terms have more frequent pings.
const longestPinged = 15 * time.Second

// pinged returns the timing of pings for terms of this duration. A connection that died silently is noticed within a
// third of the duration, and a second is left to replace it.
func pinged(duration time.Duration) pings.Timing {
	half := max(duration/6, leastPatience)
	return pings.Timing{After: half, Timeout: half}
}

// link is how a Member reaches its API server: through one line at a time.
type link struct {
	cfg *rest.Config

	mu   sync.Mutex
	line *line
}

// line is a set of connections that no other line uses.
type line struct {
	*pings.Connections
	duration time.Duration // of the shortest terms that its pings suit
}

func newLink(cfg *rest.Config) (*link, error) {
	l := &link{cfg: cfg}
	return l, l.replace(longestPinged)
}

// replace gives new requests new connections. The caller holds mu, or is newLink.
func (l *link) replace(duration time.Duration) error {
	connections, err := pings.New(l.cfg, pinged(duration))
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	l.line = &line{connections, duration}
	return nil
}

// RoundTrip implements http.RoundTripper.
func (l *link) RoundTrip(req *http.Request) (*http.Response, error) {
	return l.current().RoundTrip(req)
}

// current returns the line for new requests.
func (l *link) current() *line {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.line
}

// leave moves new requests off the suspect line, which may be dead. Requests on it go on.
func (l *link) leave(suspect *line) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.line != suspect {
		return nil // another watch has moved them already
	}
	return l.replace(suspect.duration)
}

// suit replaces the line if its pings are too rare for terms of this duration. It reports whether it did.
func (l *link) suit(duration time.Duration) (changed bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if duration <= 0 || duration >= l.line.duration {
		return false, nil
	}
	return true, l.replace(duration)
}

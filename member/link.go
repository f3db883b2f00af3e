package member

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/member/pings"
)

// longestPinged is the duration of terms up to which connections are pinged the more often the shorter it is.
const longestPinged = 15 * time.Second

// pinged is how connections are pinged where terms last this long: one that died without a word is noticed within a
// third of the duration, and a second is left to replace it.
func pinged(duration time.Duration) pings.Timing {
	half := max(duration/6, leastPatience)
	return pings.Timing{After: half, Timeout: half}
}

// link is how a Member reaches its API server: by one line at a time.
type link struct {
	cfg *rest.Config

	mu   sync.Mutex
	line *line
}

// line has connections of its own.
type line struct {
	*pings.Connections
	duration time.Duration // of the shortest terms that it is good for
}

func newLink(cfg *rest.Config) (*link, error) {
	l := &link{cfg: cfg}
	return l, l.replace(longestPinged)
}

// replace has new requests take new connections. Called under mu, and by newLink.
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

// current is the line that new requests take.
func (l *link) current() *line {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.line
}

// leave has new requests take another line than this one, which may be dead. What goes on there goes on.
func (l *link) leave(suspect *line) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.line != suspect {
		return nil // others have left it already
	}
	return l.replace(suspect.duration)
}

// suit has new requests take a line that is good for terms as short as this, and reports whether they did not.
func (l *link) suit(duration time.Duration) (changed bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if duration <= 0 || duration >= l.line.duration {
		return false, nil
	}
	return true, l.replace(duration)
}

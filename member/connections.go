package member

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/member/pings"
)

const (
	// longestPinged is the term duration from which pings get no rarer. Shorter terms have more frequent pings.
	longestPinged = 15 * time.Second
	// leastTimeout is the shortest timeout of a ping or a request, however short the terms are.
	leastTimeout = 250 * time.Millisecond
)

// connections are how a Member reaches its API server. Pings find a dead one within a third of the shortest term,
// or two leastTimeout if that is longer.
type connections struct {
	cfg *rest.Config

	mu       sync.Mutex
	current  *pings.Connections
	duration time.Duration // of the shortest terms that the pings suit
}

func newConnections(cfg *rest.Config) (*connections, error) {
	c := &connections{cfg: cfg}
	return c, c.replace(longestPinged)
}

// replace gives new requests new connections. The caller holds mu, or is newConnections.
func (c *connections) replace(duration time.Duration) error {
	sixth := max(duration/6, leastTimeout)
	replacement, err := pings.New(c.cfg, pings.Timing{After: sixth, Timeout: sixth})
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	if c.current != nil {
		c.current.CloseIdle() // others close when their requests have ended and they are idle
	}
	c.current, c.duration = replacement, duration
	return nil
}

// get returns the connections for new requests, and the duration of the shortest terms that have been seen.
func (c *connections) get() (*pings.Connections, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current, c.duration
}

// RoundTrip implements http.RoundTripper.
func (c *connections) RoundTrip(req *http.Request) (*http.Response, error) {
	current, _ := c.get()
	return current.RoundTrip(req)
}

// suit replaces the connections if their pings are too rare for terms of this duration. It reports whether it did.
func (c *connections) suit(duration time.Duration) (replaced bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if duration <= 0 || duration >= c.duration {
		return false, nil
	}
	return true, c.replace(duration)
}

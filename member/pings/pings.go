// Package pings makes connections to API servers that are pinged, so that a dead one is noticed.
//
// A connection can die silently: a router forgets it, or a host behind it is gone. client-go's own pings notice that
// after 45 s.
//
// Hub and readers share this package. Authors of controllers need not call it, and it may change with any version.
package pings

import (
	"fmt"
	"net"
	"net/http"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// dialTimeout bounds each of the two steps in which a connection is made.
const dialTimeout = 3 * time.Second

// Timing sets when a connection counts as dead.
type Timing struct {
	// After is how long a connection may be silent before it is pinged.
	After time.Duration
	// Timeout is how long the answer may take.
	Timeout time.Duration
}

// HTTP2 returns the timing in the form that an http.Transport takes. It also ends a connection on which a write makes
// no progress for After + Timeout.
func (t Timing) HTTP2() *http.HTTP2Config {
	return &http.HTTP2Config{SendPingTimeout: t.After, PingTimeout: t.Timeout, WriteByteTimeout: t.After + t.Timeout}
}

// Connections are the connections that requests to an API server take.
type Connections struct {
	http.RoundTripper
	own http.RoundTripper // nil: a Transport brought them
}

// New works as rest.TransportFor does, but with connections that are shared with no other client and that are pinged. A
// Transport in cfg brings its own connections and stays as it is.
func New(cfg *rest.Config, t Timing) (*Connections, error) {
	if cfg.Transport != nil {
		foreign, err := rest.TransportFor(cfg)
		return &Connections{RoundTripper: foreign}, err
	}
	if cfg.Dial == nil {
		cfg = rest.CopyConfig(cfg)
		cfg.Dial = (&net.Dialer{
			Timeout: dialTimeout,
			// For servers without HTTP/2, which have no pings.
			KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: t.After, Interval: time.Second, Count: 3},
		}).DialContext
	}
	// client-go shares no transport that has its own Dial in a holder that is new each time.
	all, err := cfg.TransportConfig()
	if err != nil {
		return nil, err
	}
	own, err := transport.New(&transport.Config{
		TLS: all.TLS, DialHolder: all.DialHolder, Proxy: all.Proxy, DisableCompression: all.DisableCompression,
	})
	if err != nil {
		return nil, err
	}
	base := own
	for {
		wrapper, ok := base.(utilnet.RoundTripperWrapper)
		if !ok {
			break
		}
		base = wrapper.WrappedRoundTripper()
	}
	connections, ok := base.(*http.Transport)
	if !ok {
		return nil, fmt.Errorf("client-go makes connections by a %T, want an *http.Transport", base)
	}
	connections.TLSHandshakeTimeout = dialTimeout
	connections.HTTP2 = t.HTTP2()
	wrapped, err := transport.HTTPWrappersForConfig(all, own)
	return &Connections{wrapped, own}, err
}

// CloseIdle closes the connections that carry no request.
func (c *Connections) CloseIdle() {
	utilnet.CloseIdleConnectionsFor(c.own)
}

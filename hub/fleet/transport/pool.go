package transport

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/connrotation"

	"github.com/leasecast/leasecast/member/pings"
)

// How long a member may take for the parts of a request. No promise depends on them: the contexts of renewals
// have their own deadlines.
const (
	dialTimeout = 3 * time.Second
	tlsTimeout  = 3 * time.Second
	// headerTimeout bounds the wait for the first byte of an answer, of watches too.
	headerTimeout = 5 * time.Second
	// pingAfter is how long a connection may be silent before a ping, and pingTimeout how long the answer may
	// take. Without pings a dead connection lingers for 45 s.
	pingAfter   = 2 * time.Second
	pingTimeout = 1500 * time.Millisecond
)

const (
	// maxHeader bounds the header of an answer.
	maxHeader = 64 << 10
	// maxUnread bounds what has come of an answer with HTTP/2 and was not read yet. A hundred requests may be under way.
	maxUnread = 256 << 10
)

var errPoolClosed = errors.New("the connection was replaced")

// pool holds the connections to one API server with one TLS identity: one with HTTP/2, several otherwise.
type pool struct {
	transport *http.Transport
	dialer    *connrotation.Dialer
	closed    atomic.Bool
}

func newPool(a Access) *pool {
	dialer := &net.Dialer{
		Timeout: dialTimeout,
		// For servers without HTTP/2, which have no pings.
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: pingAfter, Interval: time.Second, Count: 3},
	}
	if !a.Local {
		dialer.ControlContext = refuseLocal
	}
	p := &pool{dialer: connrotation.NewDialer(dialer.DialContext)}
	p.transport = &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            p.dial,
		TLSClientConfig:        a.tlsConfig(),
		TLSHandshakeTimeout:    tlsTimeout,
		ResponseHeaderTimeout:  headerTimeout,
		MaxResponseHeaderBytes: maxHeader,
		IdleConnTimeout:        90 * time.Second,
		ForceAttemptHTTP2:      true,
		HTTP2:                  pings.Timing{After: pingAfter, Timeout: pingTimeout}.HTTP2(),
	}
	p.transport.HTTP2.MaxReceiveBufferPerStream = maxUnread
	return p
}

// dial connects, unless the pool is closed. A connection that was made in the meantime ends.
func (p *pool) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := p.dialer.DialContext(ctx, network, address)
	if err == nil && p.closed.Load() {
		_ = conn.Close() // there is nothing to flush
		return nil, errPoolClosed
	}
	return conn, err
}

// close ends all connections, with whatever they carry, and admits no new one.
func (p *pool) close() {
	p.closed.Store(true)
	p.dialer.CloseAll()
	p.transport.CloseIdleConnections()
}

package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// patience bounds every wait of these tests, and each connection as a whole.
const patience = time.Minute

func await(t *testing.T, what string, met func() bool) {
	t.Helper()
	musttest.Eventually(t, patience, what, func(context.Context) error { return must.ErrorIf(!met(), "it is not so yet") })
}

func startProxy(t *testing.T, target string) *Proxy {
	t.Helper()
	p, err := New(target)
	musttest.Do(t, err)
	t.Cleanup(func() { musttest.Do(t, p.Close()) })
	return p
}

// member is a target that answers every line "x" with "ok x" and records what it saw.
type member struct {
	listener net.Listener
	done     sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
	lines []string
	ends  int
}

func startMember(t *testing.T) *member {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	musttest.Do(t, err)
	m := &member{listener: listener}
	m.done.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			m.mu.Lock()
			m.conns = append(m.conns, conn)
			m.mu.Unlock()
			m.done.Go(func() { m.answer(conn) })
		}
	})
	t.Cleanup(m.stop)
	return m
}

func (m *member) answer(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		m.mu.Lock()
		m.lines = append(m.lines, lines.Text())
		m.mu.Unlock()
		if _, err := fmt.Fprintf(conn, "ok %s\n", lines.Text()); err != nil {
			break
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ends++
}

func (m *member) addr() string { return m.listener.Addr().String() }

// seen are the lines that arrived, in order.
func (m *member) seen() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.lines)
}

func (m *member) expectSeen(t *testing.T, want ...string) {
	t.Helper()
	if got := m.seen(); !slices.Equal(got, want) {
		t.Errorf("want the member to see %q, got %q", want, got)
	}
}

// ended counts the connections whose end the member has seen.
func (m *member) ended() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ends
}

// stop ends the member with all its connections.
func (m *member) stop() {
	_ = m.listener.Close()
	m.mu.Lock()
	for _, conn := range m.conns {
		_ = conn.Close()
	}
	m.mu.Unlock()
	m.done.Wait()
}

// client is one connection to a proxy.
type client struct {
	*net.TCPConn
	t  *testing.T
	in *bufio.Reader
}

func connectTo(t *testing.T, p *Proxy) *client {
	t.Helper()
	conn, err := net.DialTimeout("tcp", p.Addr(), patience)
	musttest.Do(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	musttest.Do(t, conn.SetDeadline(time.Now().Add(patience)))
	return &client{TCPConn: conn.(*net.TCPConn), t: t, in: bufio.NewReader(conn)}
}

func (c *client) send(line string) {
	c.t.Helper()
	_, err := io.WriteString(c, line+"\n")
	musttest.Do(c.t, err)
}

func (c *client) expect(answer string) {
	c.t.Helper()
	line, err := c.in.ReadString('\n')
	if err != nil || line != answer+"\n" {
		c.t.Fatalf("want the answer %q, got %q, %v", answer, line, err)
	}
}

func (c *client) ask(line string) {
	c.t.Helper()
	c.send(line)
	c.expect("ok " + line)
}

// expectReset wants the connection to be reset, with nothing before that.
func (c *client) expectReset() {
	c.t.Helper()
	if b, err := c.in.ReadByte(); !errors.Is(err, syscall.ECONNRESET) {
		c.t.Fatalf("want a reset, got %q, %v", b, err)
	}
}

// expectRefusal wants a new connection to be reset, while the client connects or later.
func expectRefusal(t *testing.T, p *Proxy) {
	t.Helper()
	conn, err := net.DialTimeout("tcp", p.Addr(), patience)
	if err == nil {
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(patience)) // an error shows again in the read
		_, err = conn.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("want a reset, got %v", err)
	}
}

// hasInput reports whether anything, bytes or an end, has reached the client by now.
func (c *client) hasInput() bool {
	c.t.Helper()
	musttest.Do(c.t, c.SetReadDeadline(time.Now().Add(5*time.Millisecond)))
	_, err := c.in.Peek(1)
	musttest.Do(c.t, c.SetReadDeadline(time.Now().Add(patience)))
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

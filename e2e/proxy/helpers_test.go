package proxy

import (
	"bufio"
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
)

// patience bounds every wait of these tests for something that must come, and each connection as a whole.
const patience = time.Minute

func await(t *testing.T, what string, met func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !met() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s in vain until %s", patience, what)
		}
		<-time.After(time.Millisecond)
	}
}

func startProxy(t *testing.T, target string) *Proxy {
	t.Helper()
	p, err := New(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close the proxy: %v", err)
		}
	})
	return p
}

// member is a target that answers every line "x" with "ok x" and remembers what it saw.
type member struct {
	listener net.Listener
	done     sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	lines []string
	ends  int
}

func startMember(t *testing.T) *member {
	t.Helper()
	return listen(t, (*member).answer)
}

func listen(t *testing.T, handle func(*member, *net.TCPConn)) *member {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &member{listener: listener, conns: map[net.Conn]struct{}{}}
	m.done.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			m.mu.Lock()
			m.conns[conn] = struct{}{}
			m.mu.Unlock()
			m.done.Go(func() {
				handle(m, conn.(*net.TCPConn))
				_ = conn.Close()
			})
		}
	})
	t.Cleanup(m.stop)
	return m
}

func (m *member) answer(conn *net.TCPConn) {
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

// ended counts the connections that are over for the member.
func (m *member) ended() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ends
}

// stop ends the member with all its connections.
func (m *member) stop() {
	_ = m.listener.Close()
	m.mu.Lock()
	for conn := range m.conns {
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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return &client{TCPConn: conn.(*net.TCPConn), t: t, in: bufio.NewReader(conn)}
}

func (c *client) Close() {
	c.t.Helper()
	if err := c.TCPConn.Close(); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) send(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		c.t.Fatalf("send %q: %v", line, err)
	}
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

// expectReset wants the connection to end by a reset, with nothing before it.
func (c *client) expectReset() {
	c.t.Helper()
	if b, err := c.in.ReadByte(); !errors.Is(err, syscall.ECONNRESET) {
		c.t.Fatalf("want the connection reset, got %q, %v", b, err)
	}
}

// expectRefusal wants a new connection to be reset, which the client learns while it connects or later.
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

func (c *client) expectEnd() {
	c.t.Helper()
	if b, err := c.in.ReadByte(); !errors.Is(err, io.EOF) {
		c.t.Fatalf("want the end of the stream, got %q, %v", b, err)
	}
}

// hasInput says whether anything, bytes or an end, has reached the client by now.
func (c *client) hasInput() bool {
	c.t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(5 * time.Millisecond)); err != nil {
		c.t.Fatal(err)
	}
	_, err := c.in.Peek(1)
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		c.t.Fatal(err)
	}
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

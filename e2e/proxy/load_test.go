package proxy

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestBigTransfers moves more than any buffer holds, both ways at once.
func TestBigTransfers(t *testing.T) {
	const size = 8 << 20
	for name, delay := range map[string]time.Duration{"without delay": 0, "with a delay": 2 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			target := echo(t)
			p := startProxy(t, target)
			p.Delay(delay)
			conn := connectTo(t, p)
			data := random(size)
			var sending sync.WaitGroup
			sending.Go(func() {
				if _, err := conn.Write(data); err != nil {
					t.Errorf("write: %v", err)
				}
				if err := conn.CloseWrite(); err != nil {
					t.Errorf("end the stream: %v", err)
				}
			})
			got, err := io.ReadAll(conn)
			sending.Wait()
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, data) {
				t.Errorf("%d bytes were sent, and %d came back that are not the same", size, len(got))
			}
		})
	}
}

// TestHoldIsBounded fills a hold until the sender blocks, and lets everything go.
func TestHoldIsBounded(t *testing.T) {
	p := startProxy(t, echo(t))
	conn := connectTo(t, p)
	p.HoldToMember()
	if err := conn.SetWriteDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	sent, err := conn.Write(bytes.Repeat([]byte("x"), 64<<20))
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("want the sender to block, but it sent %d bytes: %v", sent, err)
	}
	p.Release()
	got, err := io.CopyN(io.Discard, conn, int64(sent))
	if err != nil {
		t.Errorf("want %d bytes back, got %d: %v", sent, got, err)
	}
}

// TestInterruptedWriteGoesOn breaks off a write that is stuck half way.
func TestInterruptedWriteGoesOn(t *testing.T) {
	mayRead := make(chan struct{})
	p := startProxy(t, serve(t, func(conn *net.TCPConn) {
		<-mayRead
		_, _ = io.Copy(conn, conn)
	}))
	conn := connectTo(t, p)
	data := random(32 << 20)
	var sending sync.WaitGroup
	sending.Go(func() {
		if _, err := conn.Write(data); err != nil {
			t.Errorf("write: %v", err)
		}
	})
	await(t, "a write is stuck", func() bool { return p.Stats().KeptToMember >= keepLimit && writing(p, toMember) })
	p.HoldToMember()
	close(mayRead)
	p.Release()
	got := make([]byte, len(data))
	if _, err := io.ReadFull(conn, got); err != nil {
		t.Fatal(err)
	}
	sending.Wait()
	if !bytes.Equal(got, data) {
		t.Error("what came back is not what was sent")
	}
}

func random(size int) []byte {
	data := make([]byte, size)
	chacha := rand.NewChaCha8([32]byte{1})
	_, _ = chacha.Read(data) // it never fails
	return data
}

// TestFaultStandsWhenTheCallReturns has a member that does not read, so that a write is stuck.
func TestFaultStandsWhenTheCallReturns(t *testing.T) {
	for name, fault := range map[string]func(*Proxy){
		"cut":  (*Proxy).CutToMember,
		"hold": (*Proxy).HoldToMember,
	} {
		t.Run(name, func(t *testing.T) {
			p := startProxy(t, deafTarget(t))
			conn := connectTo(t, p)
			var sending sync.WaitGroup
			sending.Go(func() {
				_, _ = conn.Write(bytes.Repeat([]byte("x"), 32<<20)) // ends with the connection
			})
			await(t, "a write is stuck", func() bool { return p.Stats().KeptToMember >= keepLimit })
			fault(p)
			if writing(p, toMember) {
				t.Error("a write goes on")
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			sending.Wait()
		})
	}
}

// TestAnyOrderOfFaults changes faults at random under traffic. It is for the race detector, and
// what it asserts itself holds whatever the order.
func TestAnyOrderOfFaults(t *testing.T) {
	m := startMember(t)
	p := startProxy(t, m.addr())
	controls := []func(){
		p.Heal, p.CutToMember, p.CutFromMember, p.BlackHole, p.Hold, p.HoldToMember, p.HoldFromMember,
		p.Release, p.Release, p.Reset, p.Heal, func() { p.Delay(time.Millisecond) }, func() { p.Stats() },
		func() {
			if err := p.Retarget(m.addr()); err != nil {
				t.Error(err)
			}
		},
	}
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					talk(p.Addr())
				}
			}
		})
	}
	for range 2000 {
		controls[rand.IntN(len(controls))]()
		if rand.IntN(50) == 0 {
			<-time.After(time.Millisecond) // lets traffic get into the fault
		}
		p.BlackHole()
		if unreleased(p, toMember) || unreleased(p, fromMember) {
			t.Fatal("a write that no Release let through goes on in a black hole")
		}
	}
	close(stop)
	p.Heal()
	clients.Wait()
	connectTo(t, p).ask("after all")
}

// TestCloseLeavesNoGoroutine closes proxies in the middle of everything.
func TestCloseLeavesNoGoroutine(t *testing.T) {
	for name, fault := range map[string]func(*Proxy){
		"healthy":    func(*Proxy) {},
		"black hole": (*Proxy).BlackHole,
		"hold":       (*Proxy).Hold,
		"delay":      func(p *Proxy) { p.Delay(time.Hour) },
		"reset":      (*Proxy).Reset,
	} {
		t.Run(name, func(t *testing.T) {
			p, err := New(startMember(t).addr())
			if err != nil {
				t.Fatal(err)
			}
			connectTo(t, p).ask("hello")
			fault(p)
			if name != "reset" {
				connectTo(t, p)
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			if err := p.Close(); err != nil {
				t.Errorf("the second Close fails: %v", err)
			}
			// A goroutine is still listed for a moment after it has reported its end.
			await(t, "no goroutine of the proxy is left", func() bool { return goroutines() == "" })
			// A dial would tell of whoever has been given the port since.
			if err := p.listener.(*net.TCPListener).SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
				t.Errorf("a closed proxy listens on: %v", err)
			}
		})
	}
}

// goroutines returns the stacks that run through this package but not through its tests.
func goroutines() string {
	buf := make([]byte, 1<<20)
	var left []string
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(stack, "proxy.(*Proxy)") || strings.Contains(stack, "proxy.(*link)") {
			left = append(left, stack)
		}
	}
	return strings.Join(left, "\n\n")
}

// writing says whether a write of a direction is under way.
func writing(p *Proxy, d direction) bool {
	return anyPipe(p, d, func(pipe *pipe) bool { return pipe.writing != nil })
}

// unreleased says whether a write is under way that owes nothing to a Release: what a hold kept and
// Release let through passes whatever the mode, also in the cut that followed the hold.
func unreleased(p *Proxy, d direction) bool {
	return anyPipe(p, d, func(pipe *pipe) bool { return pipe.writing != nil && pipe.queue[0].fate != released })
}

// talk makes one short conversation and does not mind how it ends.
func talk(addr string) {
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Millisecond))
	for range 5 {
		if _, err := io.WriteString(conn, "talk\n"); err != nil {
			return
		}
		if _, err := io.ReadFull(conn, make([]byte, len("ok talk\n"))); err != nil {
			return
		}
	}
}

// echo is a target that sends everything back.
func echo(t *testing.T) string {
	return serve(t, func(conn *net.TCPConn) {
		_, _ = io.Copy(conn, conn)
		_ = conn.CloseWrite()
	})
}

// deafTarget accepts connections and reads nothing.
func deafTarget(t *testing.T) string {
	return serve(t, func(*net.TCPConn) { <-t.Context().Done() })
}

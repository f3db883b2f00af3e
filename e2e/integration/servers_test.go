package integration

import (
	"crypto/tls"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
)

// kubeconfig is that of a member's administrator, through its proxy.
func (w *world) kubeconfig(member string) []byte {
	content := harness.Get(w.Servers.Member(member).ProxiedKubeconfig())(w.T)
	return content
}

// kubeconfigFor turns a configuration of a member into a kubeconfig through its proxy.
func (w *world) kubeconfigFor(member string, cfg *rest.Config) []byte {
	content := harness.Get(fleet.Kubeconfig(member, w.Servers.Member(member).ViaProxy(cfg)))(w.T)
	return content
}

// kubeconfigTo is that of a server that is none of the fleet's.
func kubeconfigTo(t *testing.T, address string, ca []byte) []byte {
	content := harness.Get(fleet.Kubeconfig("stranger", &rest.Config{
		Host: "https://" + address, BearerToken: "token", TLSClientConfig: rest.TLSClientConfig{CAData: ca},
	}))(t)
	return content
}

// muteServer completes TLS, keeps the connection alive, and answers no request. It
// returns its address and its CA.
func muteServer(t *testing.T) (address string, ca []byte, certificate tls.Certificate) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return s.Listener.Addr().String(), ca, s.TLS.Certificates[0]
}

// deafServer accepts connections, completes TLS if it has a certificate, and then only
// listens.
func deafServer(t *testing.T, certificate *tls.Certificate) (address string) {
	l := harness.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	if certificate != nil {
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{*certificate}, NextProtos: []string{"h2"}})
	}
	var group sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	group.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			group.Go(func() { _, _ = io.Copy(io.Discard, conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, conn := range conns {
			_ = conn.Close()
		}
		mu.Unlock()
		group.Wait()
	})
	return l.Addr().String()
}

// deadAddress is one at which nobody listens. Its port is taken until the test ends, so that nobody else listens there.
func deadAddress(t *testing.T) string {
	fd := harness.Get(unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0))(t)
	unix.CloseOnExec(fd)
	t.Cleanup(func() { _ = unix.Close(fd) })
	harness.Must(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	bound := harness.Get(unix.Getsockname(fd))(t)
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(bound.(*unix.SockaddrInet4).Port))
}

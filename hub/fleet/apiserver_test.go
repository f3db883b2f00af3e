package fleet

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/fleet/transport"
)

var testKey = Key{Fleet: "prod", Name: "east"}

// apiServer serves TLS, with HTTP/2.
func apiServer(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// accessTo is the access of a kubeconfig that leads to the server.
func accessTo(t *testing.T, s *httptest.Server) transport.Access {
	t.Helper()
	text := musttest.Get(fleet.TokenKubeconfig(s.URL, s.Certificate(), "token"))(t)
	a := musttest.Get(transport.ParseKubeconfig(text))(t)
	a.Local = true
	return a
}

func targetTo(t *testing.T, a transport.Access, old *transport.Target) *transport.Target {
	t.Helper()
	tg := transport.NewTarget(a, old)
	t.Cleanup(tg.Close)
	return tg
}

// answerWith answers with an object in protobuf.
func answerWith(w http.ResponseWriter, o runtime.Object) {
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	_ = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(o, w) // a client may not wait for the answer
}

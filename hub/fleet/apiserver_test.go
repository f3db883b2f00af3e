package fleet

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/leasecast/leasecast/hub/fleet/transport"
)

var testKey = Key{Fleet: "prod", Name: "east"}

// apiServer serves TLS, with HTTP/2. Objects that it answers in JSON are sent in protobuf to who asks for that.
func apiServer(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	return plainServer(t, func(w http.ResponseWriter, r *http.Request) {
		answer := httptest.NewRecorder()
		handler(answer, r)
		maps.Copy(w.Header(), answer.Header())
		body := answer.Body.Bytes()
		o, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err == nil && strings.Contains(r.Header.Get("Accept"), "protobuf") {
			var all bytes.Buffer
			if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(o, &all); err != nil {
				t.Error(err)
			}
			body = all.Bytes()
			w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(body) // a client may not wait for the answer
	})
}

// plainServer is apiServer for a handler that speaks protobuf.
func plainServer(t *testing.T, handler http.HandlerFunc) *httptest.Server {
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
	text, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"contexts": []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "c", "user": "u"}}},
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{
			"server": s.URL,
			"certificate-authority-data": pem.EncodeToMemory(
				&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
		}}},
		"users": []any{map[string]any{"name": "u", "user": map[string]any{"token": "token"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	a, err := transport.ParseKubeconfig(text)
	if err != nil {
		t.Fatal(err)
	}
	a.Local = true
	return a
}

func targetTo(t *testing.T, a transport.Access, old *transport.Target) *transport.Target {
	t.Helper()
	tg := transport.NewTarget(a, old)
	t.Cleanup(tg.Close)
	return tg
}

func kubeSystem(w http.ResponseWriter, uid string) {
	w.Header().Set("Content-Type", "application/json")
	reply(w, fmt.Sprintf(`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":%q}}`, uid))
}

// replyNamespace answers with a Namespace in protobuf that has nothing but a short name.
func replyNamespace(w http.ResponseWriter, name string) {
	n := byte(len(name))
	w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
	reply(w, string([]byte{'k', '8', 's', 0, 0x12, n + 4, 0x0a, n + 2, 0x0a, n})+name)
}

// reply ignores that a client may not wait for the answer.
func reply(w io.Writer, text string) { _, _ = io.WriteString(w, text) }

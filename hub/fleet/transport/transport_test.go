package transport

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/e2e/proxy"
	"github.com/leasecast/leasecast/hub/fleet/wake"
)

// apiServer serves TLS, with HTTP/2 or without.
func apiServer(t *testing.T, http2 bool, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = http2
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func accessTo(t *testing.T, s *httptest.Server, path, token string) Access {
	t.Helper()
	u := musttest.Get(parseServer(s.URL + path))(t)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	e := endpoint{address: s.URL + path, ca: string(ca)}
	a := musttest.Get(Access{endpoint: e, Local: true, server: u, token: token}.parseKeys())(t)
	return a
}

func targetTo(t *testing.T, a Access, old *Target) *Target {
	t.Helper()
	tg := NewTarget(a, old)
	t.Cleanup(tg.Close)
	return tg
}

// kubeSystem answers with the Namespace kube-system.
func kubeSystem(w http.ResponseWriter, uid string) {
	answerNamespace(w, metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: types.UID(uid)})
}

// answerNamespace answers with a Namespace in protobuf.
func answerNamespace(w http.ResponseWriter, meta metav1.ObjectMeta) {
	w.Header().Set("Content-Type", protobufType)
	_, _ = w.Write(enclose("v1", "Namespace", marshalled(&corev1.Namespace{ObjectMeta: meta})))
}

// identify asks which cluster a target leads to.
func identify(ctx context.Context, tg *Target) (string, error) {
	l := newTestTransport()
	return tg.Identify(ctx, corev1client.NewForConfigOrDie(l.Config(l.To(tg))).RESTClient())
}

// reply ignores that a client may not wait for the answer.
func reply(w io.Writer, text string) { _, _ = io.WriteString(w, text) }

func TestIdentify(t *testing.T) {
	status := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", jsonType)
			w.WriteHeader(code)
			reply(w, body)
		}
	}
	uid := func(uid string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { kubeSystem(w, uid) }
	}
	const notOne = "no Kubernetes API server"
	for name, tc := range map[string]struct {
		handler http.HandlerFunc
		uid     string
		reason  reason.Reason
		message string
	}{
		"an API server": {handler: uid("u-1"), uid: "u-1"},
		"forbidden": {
			handler: status(403, `{"kind":"Status","reason":"Forbidden","message":"namespaces \"kube-system\" is forbidden"}`),
			reason:  reason.Forbidden, message: "answers 403: namespaces",
		},
		"unauthorized": {handler: status(401, ""), reason: reason.Forbidden, message: "answers 401"},
		"not ready":    {handler: status(503, ""), reason: reason.Unreachable, message: "answers 503"},
		"a web site": {handler: func(w http.ResponseWriter, _ *http.Request) { reply(w, "<html>") },
			reason: reason.Unreachable, message: "no protobuf of Kubernetes"},
		"another namespace": {handler: func(w http.ResponseWriter, _ *http.Request) {
			answerNamespace(w, metav1.ObjectMeta{Name: "x", UID: "u"})
		}, reason: reason.Unreachable, message: notOne},
		"no UID":                    {handler: uid(""), reason: reason.Unreachable, message: notOne},
		"a UID that is too long":    {handler: uid(strings.Repeat("u", 100)), reason: reason.Unreachable, message: notOne},
		"a UID that moves a cursor": {handler: uid("u\x1b[31m"), reason: reason.Unreachable, message: notOne},
		"a token sent back": {handler: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", jsonType)
			w.WriteHeader(403)
			reply(w, fmt.Sprintf(`{"kind":"Status","reason":"Forbidden","message":"I got %s\n and\u001b[31m more %s"}`,
				r.Header.Get("Authorization"), strings.Repeat("x", 1000)))
		}, reason: reason.Forbidden, message: "I got Bearer [token]  and [31m more"},
	} {
		t.Run(name, func(t *testing.T) {
			uid, err := identify(t.Context(), targetTo(t, accessTo(t, apiServer(t, true, tc.handler), "", secretText), nil))
			if err == nil && uid != tc.uid {
				t.Errorf("uid %q, want %q", uid, tc.uid)
			}
			checkError(t, err, tc.message)
			var contact *ContactError
			if err != nil && (!errors.As(err, &contact) || contact.Reason != tc.reason) {
				t.Errorf("%#v, want the reason %v", err, tc.reason)
			}
			if err != nil && len(err.Error()) > maxMessage+len("…") {
				t.Errorf("the message is long: %v", err)
			}
		})
	}
}

func TestRequestsReachTheTarget(t *testing.T) {
	for name, tc := range map[string]struct {
		http2        bool
		prefix, path string
		want         string // before the path
	}{
		"HTTP/2":                      {true, "", "/default", ""},
		"HTTP/1":                      {false, "", "/default", ""},
		"below a path":                {true, "/k8s/clusters/c-1/", "/default", "/k8s/clusters/c-1"},
		"a path with special bytes":   {true, "/k8s", "/a%2Fb", "/k8s"},
		"a prefix with special bytes": {true, "/k%20s", "/a%2Fb", "/k%20s"},
	} {
		t.Run(name, func(t *testing.T) {
			var got atomic.Pointer[http.Request]
			s := apiServer(t, tc.http2, func(w http.ResponseWriter, r *http.Request) {
				got.Store(r)
				answerNamespace(w, metav1.ObjectMeta{Name: "shop"})
			})
			l := newTestTransport()
			tg := targetTo(t, accessTo(t, s, tc.prefix, "t0ken"), nil)
			l.Lead(tg)
			resp, err := (&http.Client{Transport: l.Renewals()}).Get("https://east.prod.invalid/api/v1/namespaces" + tc.path)
			musttest.Do(t, err)
			_ = resp.Body.Close()
			r := got.Load()
			path := tc.want + "/api/v1/namespaces" + tc.path
			token := r.Header.Get("Authorization")
			if r.URL.EscapedPath() != path || r.Host != tg.Access.server.Host || token != "Bearer t0ken" {
				t.Errorf("%s %s %v", r.Host, r.URL, r.Header)
			}
			if (r.ProtoMajor == 2) != tc.http2 {
				t.Errorf("protocol %s", r.Proto)
			}
		})
	}
}

// Without HTTP/2 a connection ends with an answer that is not read to its end.
func TestConnectionsAreUsedAgain(t *testing.T) {
	for name, test := range map[string]struct{ method, path string }{
		"an object":  {http.MethodGet, "/api/v1/namespaces/shop"},
		"a list":     {http.MethodGet, "/api/v1/namespaces"},
		"a deletion": {http.MethodDelete, "/apis/coordination.k8s.io/v1/namespaces/shop/leases/a"},
	} {
		t.Run(name, func(t *testing.T) {
			connections := make(chan string, 3)
			meta := metav1.ObjectMeta{Name: "shop", Annotations: map[string]string{"a": strings.Repeat("a", 2000)}}
			object := marshalled(&corev1.Namespace{ObjectMeta: meta})
			if name == "a list" {
				object = marshalled(&corev1.NamespaceList{Items: []corev1.Namespace{{ObjectMeta: meta}}})
			}
			s := apiServer(t, false, func(w http.ResponseWriter, r *http.Request) {
				connections <- r.RemoteAddr
				w.Header().Set("Content-Type", protobufType)
				_, _ = w.Write(append(enclose("v1", "Namespace", object), "\x1a\x00\"\x00"...)) // as API servers end it
			})
			l := newTestTransport()
			l.Lead(targetTo(t, accessTo(t, s, "", "t0ken"), nil))
			for range 3 {
				r := musttest.Get(
					http.NewRequestWithContext(t.Context(), test.method, "https://east.prod.invalid"+test.path, nil),
				)(t)
				resp, err := (&http.Client{Transport: l.Renewals()}).Do(r)
				musttest.Do(t, err)
				_ = resp.Body.Close()
			}
			if a, b, c := <-connections, <-connections, <-connections; a != b || b != c {
				t.Errorf("connections from %s, %s and %s, want one", a, b, c)
			}
		})
	}
}

func TestWhatIsNotSentOrNotHandedOn(t *testing.T) {
	s := apiServer(t, true, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v1/namespaces/redirect":
			http.Redirect(w, r, "https://192.0.2.1/steal", http.StatusTemporaryRedirect)
		default:
			w.Header().Set("Content-Type", protobufType)
		}
	})
	tg := targetTo(t, accessTo(t, s, "", "t0ken"), nil)
	for name, tc := range map[string]struct {
		connected bool
		url       string
		want      error
		status    int
	}{
		"requests for somebody else":   {true, "https://192.0.2.1/api/v1/namespaces", errStranger, 0},
		"requests without a target":    {false, "https://east.prod.invalid/api/v1/namespaces", errNoTarget, 0},
		"requests for an unknown kind": {true, "https://east.prod.invalid/api/v1/secrets", errUnlisted, 0},
		"but a watch may be empty":     {true, "https://east.prod.invalid/api/v1/namespaces?watch=true", nil, 200},
		"redirects are not followed":   {true, "https://east.prod.invalid/api/v1/namespaces/redirect", nil, 307},
	} {
		t.Run(name, func(t *testing.T) {
			l := newTestTransport()
			if tc.connected {
				l.Lead(tg)
			}
			status := 0
			resp, err := (&http.Client{Transport: l.Renewals()}).Get(tc.url)
			if err == nil {
				status = resp.StatusCode
				_, err = io.ReadAll(resp.Body)
				_ = resp.Body.Close()
			}
			if !errors.Is(err, tc.want) || status != tc.status {
				t.Errorf("status %d, error %v; want %d, %v", status, err, tc.status, tc.want)
			}
		})
	}
}

func TestATargetInheritsConnectionsIfOnlyTheTokenChanged(t *testing.T) {
	cert, key := selfSigned(t)
	for name, tc := range map[string]struct {
		change func(*Target)
		want   bool
	}{
		"the same":                {func(*Target) {}, true},
		"another token":           {func(t *Target) { t.Access.token = "other" }, true},
		"another address":         {func(t *Target) { t.Access.address = "https://192.0.2.1" }, false},
		"another CA":              {func(t *Target) { t.Access.ca = string(cert) }, false},
		"another server name":     {func(t *Target) { t.Access.serverName = "x" }, false},
		"with client certificate": {func(t *Target) { t.Access.cert, t.Access.key = string(cert), string(key) }, false},
		"another cluster":         {func(t *Target) { t.UID = "other" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := accessTo(t, apiServer(t, true, func(http.ResponseWriter, *http.Request) {}), "", "t")
			old, next := targetTo(t, a, nil), targetTo(t, a, nil)
			tc.change(next)
			if got := next.Inherit(old); got != tc.want || next.caches == old.caches != tc.want {
				t.Errorf("inherits %v, want %v", got, tc.want)
			}
		})
	}
	if next := targetTo(t, Access{}, nil); next.Inherit(nil) {
		t.Error("the first target inherits connections")
	}
}

func TestClosedPoolEndsRequestsAndMakesNoConnection(t *testing.T) {
	reached := make(chan struct{})
	s := apiServer(t, true, func(_ http.ResponseWriter, r *http.Request) {
		close(reached)
		<-r.Context().Done()
	})
	tg := targetTo(t, accessTo(t, s, "", "t"), nil)
	failed := make(chan error, 1)
	go func() {
		_, err := identify(t.Context(), tg)
		failed <- err
	}()
	<-reached
	tg.Close()
	select {
	case err := <-failed:
		checkError(t, err, "does not answer")
	case <-time.After(5 * time.Second):
		t.Fatal("the request goes on")
	}
	_, err := identify(t.Context(), tg)
	checkError(t, err, errPoolClosed.Error())
}

// roundTripper is a function as a transport.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// An informer's requests wait for the member, and go on when it answers. So do its watches, from where they were.
func TestARetryWaitsForAnAnswer(t *testing.T) {
	t.Run("a list", func(t *testing.T) { waitsForAnAnswer(t, "") })
	t.Run("a watch", func(t *testing.T) { waitsForAnAnswer(t, "?watch=true") })
}

func waitsForAnAnswer(t *testing.T, query string) {
	synctest.Test(t, func(t *testing.T) {
		var answered wake.Signal
		isBack := false
		client := &http.Client{Transport: NewRetry(roundTripper(func(req *http.Request) (*http.Response, error) {
			if !isBack || req.Context().Err() != nil {
				return nil, errNoTarget
			}
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		}), &answered, clock.RealClock{})}
		ask := func(ctx context.Context) error {
			req := musttest.Get(
				http.NewRequestWithContext(ctx, http.MethodGet, "https://east.prod.invalid"+Namespaces+query, nil),
			)(t)
			resp, err := client.Do(req)
			if err == nil {
				_ = resp.Body.Close()
			}
			return err
		}
		done := make(chan error, 1)
		go func() { done <- ask(t.Context()) }()
		for range 3 { // the member is lost again each time
			synctest.Wait()
			answered.Fire()
			musttest.Do(t, wake.For(t.Context(), clock.RealClock{}, time.Second, nil))
		}
		synctest.Wait()
		isBack = true
		if err := wake.For(t.Context(), clock.RealClock{}, time.Minute, nil); err != nil || len(done) > 0 {
			t.Errorf("it did not wait for an answer: %v", err)
		}
		answered.Fire()
		if err := <-done; err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := ask(ctx); !errors.Is(err, errNoTarget) && !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled request: %v", err)
		}
	})
}

// To an informer a lost watch looks like one that the server has ended: it begins the next one at once.
func TestLostWatchEndsWithoutAnError(t *testing.T) {
	client := &http.Client{Transport: NewRetry(roundTripper(func(*http.Request) (*http.Response, error) {
		lost := iotest.ErrReader(net.ErrClosed)
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(lost)}, nil
	}), &wake.Signal{}, clock.RealClock{})}
	resp, err := client.Get("https://east.prod.invalid" + Namespaces + "?watch=true")
	musttest.Do(t, err)
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Errorf("it ends with %v", err)
	}
	_ = resp.Body.Close()
}

func TestDeadConnectionIsReplaced(t *testing.T) {
	s := apiServer(t, true, func(w http.ResponseWriter, _ *http.Request) { kubeSystem(w, "u") })
	way := musttest.Get(proxy.New(strings.TrimPrefix(s.URL, "https://")))(t)
	t.Cleanup(func() { _ = way.Close() })
	access := accessTo(t, s, "", "t")
	access.server.Host = way.Addr()
	tg := targetTo(t, access, nil)
	_ = musttest.Get(identify(t.Context(), tg))(t)
	way.Strand()
	start := time.Now()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		_, err := identify(ctx, tg)
		cancel()
		if err == nil {
			break
		}
		if took := time.Since(start); took > 2*(pingAfter+pingTimeout) {
			t.Fatalf("after %v: %v", took, err)
		}
	}
	t.Logf("replaced after %v", time.Since(start))
}

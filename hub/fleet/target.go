package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/reason"
)

// maxAnswer bounds an answer to identify: a Namespace, or the Status of a refusal.
const maxAnswer = 256 << 10

// leastSecret is how long a token must be to be worth hiding; a shorter one would tear words apart.
const leastSecret = 8

// maxMessage bounds what is repeated of a member's own words.
const maxMessage = 256

// target is one way to reach one API server: an address, credentials and two connections, one for
// caches and one for renewals and probes.
type target struct {
	access access
	// uid is what identify found before the target came into use.
	uid            string
	caches, writer *pool
	// lastRead is that of a transport: set when the target comes into use.
	requestSent func() answerFunc
}

// newTarget makes a target that is not connected yet. If it differs from old in the token only, it
// shares the connections of old.
func newTarget(a access, old *target) (*target, error) {
	if old != nil && old.access.sameConnection(a) {
		return &target{access: a, caches: old.caches, writer: old.writer}, nil
	}
	caches, err := newPool(a)
	if err != nil {
		return nil, err
	}
	writer, err := newPool(a)
	if err != nil {
		return nil, err
	}
	return &target{access: a, caches: caches, writer: writer}, nil
}

// sameConnection reports whether both can share a connection, which does not know tokens.
func (a access) sameConnection(b access) bool {
	a.token, b.token = "", ""
	aServer, bServer := a.server.String(), b.server.String()
	a.server, b.server = nil, nil
	return a == b && aServer == bServer
}

func (a access) equal(b access) bool { return a.token == b.token && a.sameConnection(b) }

func (t *target) shares(o *target) bool { return o != nil && t.writer == o.writer }

func (t *target) close() {
	t.caches.close()
	t.writer.close()
}

// contactError is why a member could not be used, without secrets.
type contactError struct {
	reason  reason.Reason
	message string
}

func (e *contactError) Error() string { return e.message }

// identify asks the member who it is: an authenticated read of kube-system, whose UID is the
// cluster's. Errors are *contactError.
func (t *target) identify(ctx context.Context) (string, error) {
	u := *t.access.server
	u.Path, u.RawPath = u.Path+"/api/v1/namespaces/"+metav1.NamespaceSystem, ""
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return "", t.unreachable(err)
	}
	req.Header.Set("Accept", "application/json")
	t.authorize(req)
	resp, err := timed(t.requestSent, t.writer.transport, req)
	if err != nil {
		return "", t.unreachable(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return "", t.unreachable(err)
	}
	if resp.StatusCode != http.StatusOK {
		return "", t.refused(resp.StatusCode, body)
	}
	var ns corev1.Namespace
	if err := json.Unmarshal(body, &ns); err != nil || ns.Name != metav1.NamespaceSystem || !plausibleUID(string(ns.UID)) {
		return "", t.unreachable(errors.New("the answer is no Namespace: this is no Kubernetes API server"))
	}
	return string(ns.UID), nil
}

// plausibleUID keeps what a member calls itself fit for annotations and messages.
func plausibleUID(uid string) bool {
	if uid == "" || len(uid) > 64 {
		return false
	}
	for _, c := range []byte(uid) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return true
}

func (t *target) authorize(req *http.Request) {
	if t.access.token != "" {
		req.Header.Set("Authorization", "Bearer "+t.access.token)
	}
}

func (t *target) unreachable(err error) error {
	var unwrapped *url.Error
	if errors.As(err, &unwrapped) {
		err = unwrapped.Err
	}
	message := fmt.Sprintf("%s does not answer: %v", t.access.server.Host, err)
	if errors.Is(err, context.DeadlineExceeded) {
		message = fmt.Sprintf("%s does not answer in time", t.access.server.Host)
	}
	return &contactError{reason.Unreachable, t.clean(message)}
}

func (t *target) refused(code int, body []byte) error {
	var status metav1.Status
	_ = json.Unmarshal(body, &status) // what is no Status has no message
	r := reason.Unreachable
	if code == http.StatusUnauthorized || code == http.StatusForbidden {
		r = reason.Forbidden
	}
	message := fmt.Sprintf("%s answers %d %s", t.access.server.Host, code, http.StatusText(code))
	if status.Message != "" {
		message += ": " + status.Message
	}
	return &contactError{r, t.clean(message)}
}

// describe turns the error of a client on this target into a *contactError.
func (t *target) describe(err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return &contactError{reason.Forbidden, t.clean(err.Error())}
	default:
		return t.unreachable(err)
	}
}

// clean makes what a member said fit to be shown: short, in one line, and without the token, which
// a member could send back.
func (t *target) clean(s string) string {
	if len(t.access.token) >= leastSecret {
		s = strings.ReplaceAll(s, t.access.token, "[token]")
	}
	return shorten(s)
}

func shorten(s string) string {
	s = strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s), "?")
	if len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage], "") + "…"
}

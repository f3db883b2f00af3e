package transport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/reason"
)

// maxAnswer bounds an answer to Identify: a Namespace, or the Status of a refusal.
const maxAnswer = 256 << 10

// Target is one way to reach one API server: an address, credentials and two connections, one for caches and
// one for renewals and probes.
type Target struct {
	Access Access
	// User is impersonated in each request, unless it is empty. Set it before the target is used.
	User string
	// UID is what Identify found before the target came into use.
	UID            string
	caches, writer *pool
	// RequestSent is that of a Swappable. It is set when the target comes into use.
	RequestSent func() AnswerFunc
	// earlier are tokens that the member was sent before: it could send them back.
	earlier []string
}

// mostEarlier bounds how many of them are remembered.
const mostEarlier = 8

// Hide has the target hide the tokens of an earlier one in messages, too. o may be nil. Call it before the target is used.
func (t *Target) Hide(o *Target) {
	if o == nil {
		return
	}
	for _, token := range append(slices.Clone(o.earlier), o.Access.token) {
		if token != t.Access.token && !slices.Contains(t.earlier, token) {
			t.earlier = append(t.earlier, token)
		}
	}
	t.earlier = t.earlier[max(0, len(t.earlier)-mostEarlier):]
}

// NewTarget returns a target that is not connected yet. If it differs from old in the token only, it shares
// the connections of old.
func NewTarget(a Access, old *Target) *Target {
	if old != nil && old.Access.sameConnection(a) {
		return &Target{Access: a, caches: old.caches, writer: old.writer}
	}
	return &Target{Access: a, caches: newPool(a), writer: newPool(a)}
}

// sameConnection reports whether both can share a connection, which does not know tokens.
func (a Access) sameConnection(b Access) bool {
	a.token, b.token = "", ""
	aServer, bServer := a.server.String(), b.server.String()
	a.server, b.server = nil, nil
	a.roots, b.roots, a.pair, b.pair = nil, nil, nil, nil // they follow from the rest
	return a == b && aServer == bServer
}

// Equal reports whether both are the same.
func (a Access) Equal(b Access) bool { return a.token == b.token && a.sameConnection(b) }

// Shares reports whether both use the same connections.
func (t *Target) Shares(o *Target) bool { return o != nil && t.writer == o.writer }

// Close ends all connections.
func (t *Target) Close() {
	t.caches.close()
	t.writer.close()
}

// Retire ends the watches of a target that was replaced. Requests of renewals may finish until Close.
func (t *Target) Retire() {
	t.caches.close()
	t.writer.transport.CloseIdleConnections()
}

// ContactError says why a member could not be used, without secrets.
type ContactError struct {
	Reason  reason.Reason
	Message string
}

func (e *ContactError) Error() string { return e.Message }

// Identify asks the member which cluster it is: an authenticated read of kube-system, whose UID is the
// cluster's. Errors are *ContactError.
func (t *Target) Identify(ctx context.Context) (string, error) {
	u := *t.Access.server
	u.Path, u.RawPath = u.Path+"/api/v1/namespaces/"+metav1.NamespaceSystem, ""
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return "", t.unreachable(err)
	}
	req.Header.Set("Accept", "application/json")
	t.authorize(req)
	resp, err := timed(t.RequestSent, t.writer.transport, req)
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
	var ns struct { // no more of it than what is needed: the rest could be a bomb
		Metadata struct {
			Name string `json:"name"`
			UID  string `json:"uid"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(body, &ns); err != nil || ns.Metadata.Name != metav1.NamespaceSystem || !plausibleUID(ns.Metadata.UID) {
		return "", t.unreachable(errors.New("the answer is no Namespace: this is no Kubernetes API server"))
	}
	return ns.Metadata.UID, nil
}

// plausibleUID reports whether a UID is fit for annotations and messages.
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

func (t *Target) authorize(req *http.Request) {
	if t.Access.token != "" {
		req.Header.Set("Authorization", "Bearer "+t.Access.token)
	}
	if t.User != "" {
		req.Header.Set(authenticationv1.ImpersonateUserHeader, t.User)
	}
}

// Bare is the target without its user: it acts as the user of the kubeconfig.
func (t *Target) Bare() *Target {
	bare := *t
	bare.User = ""
	return &bare
}

func (t *Target) unreachable(err error) error {
	var unwrapped *url.Error
	if errors.As(err, &unwrapped) {
		err = unwrapped.Err
	}
	message := fmt.Sprintf("%s does not answer: %v", t.Access.server.Host, err)
	if errors.Is(err, context.DeadlineExceeded) {
		message = fmt.Sprintf("%s does not answer in time", t.Access.server.Host)
	}
	return &ContactError{reason.Unreachable, t.Clean(message)}
}

func (t *Target) refused(code int, body []byte) error {
	var status struct {
		Message string `json:"message"`
	}
	_ = json.Unmarshal(body, &status) // what is no Status has no message
	r := reason.Unreachable
	if code == http.StatusUnauthorized || code == http.StatusForbidden {
		r = reason.Forbidden
	}
	message := fmt.Sprintf("%s answers %d %s", t.Access.server.Host, code, http.StatusText(code))
	if status.Message != "" {
		message += ": " + status.Message
	}
	return &ContactError{r, t.Clean(message)}
}

// Describe turns the error of a client on this target into a *ContactError.
func (t *Target) Describe(err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return &ContactError{reason.Forbidden, t.Clean(err.Error())}
	default:
		return t.unreachable(err)
	}
}

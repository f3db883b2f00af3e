package transport

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/api/reason"
)

// maxTokens bounds how many tokens are hidden in messages.
const maxTokens = 9

// Target is one way to reach one API server: an address, credentials and two connections, one for caches and
// one for renewals and probes.
type Target struct {
	Access Access
	// User is impersonated in each request, unless it is empty. Set it before the target is used.
	User string
	// UID is what Identify found before the target came into use.
	UID string

	caches, renewals *pool
	// tokens are those that the member was sent, the present one last: it could send each of them back.
	tokens []string
}

// NewTarget returns a target that is not connected yet. It hides the tokens of an earlier one in messages, too; earlier
// may be nil.
func NewTarget(a Access, earlier *Target) *Target {
	t := &Target{Access: a, caches: newPool(a), renewals: newPool(a)}
	if earlier != nil {
		t.tokens = slices.Clone(earlier.tokens)
	}
	if !slices.Contains(t.tokens, a.token) {
		t.tokens = append(t.tokens, a.token)
	}
	t.tokens = t.tokens[max(0, len(t.tokens)-maxTokens):]
	return t
}

// Inherit has the target go on with the connections of an old one, which must not be used any more. It returns false
// if they differ in more than their tokens: a connection does not know tokens.
func (t *Target) Inherit(earlier *Target) bool {
	if earlier == nil || earlier.UID != t.UID || !earlier.Access.sameConnection(t.Access) {
		return false
	}
	t.Close()
	t.caches, t.renewals = earlier.caches, earlier.renewals
	return true
}

// Close ends all connections.
func (t *Target) Close() {
	t.caches.close()
	t.renewals.close()
}

// ContactError says why a member could not be used, without secrets.
type ContactError struct {
	Reason  reason.Reason
	Message string
}

func (e *ContactError) Error() string { return e.Message }

// Identify asks the member which cluster it is: an authenticated read of kube-system, whose UID is the
// cluster's. client leads to the target. Errors are *ContactError.
func (t *Target) Identify(ctx context.Context, client rest.Interface) (string, error) {
	var ns corev1.Namespace
	err := client.Get().Resource("namespaces").Name(metav1.NamespaceSystem).MaxRetries(0).Do(ctx).Into(&ns)
	uid := string(ns.UID)
	if err == nil && (ns.Name != metav1.NamespaceSystem || uid == "" || !isPrintable(uid)) {
		err = errors.New("the answer is not the Namespace kube-system: this is no Kubernetes API server")
	}
	return uid, t.Describe(err)
}

// addressed is a request for the target, with its credentials.
func (t *Target) addressed(ctx context.Context, req *http.Request, agent string) *http.Request {
	server := t.Access.server
	out := req.Clone(ctx)
	out.URL.Scheme, out.URL.Host, out.Host = server.Scheme, server.Host, ""
	if server.Path != "" {
		if out.URL.RawPath != "" {
			out.URL.RawPath = server.EscapedPath() + out.URL.RawPath
		}
		out.URL.Path = server.Path + out.URL.Path
	}
	out.Header.Set("User-Agent", agent)
	if t.Access.token != "" {
		out.Header.Set("Authorization", "Bearer "+t.Access.token)
	}
	if t.User != "" {
		out.Header.Set(authenticationv1.ImpersonateUserHeader, t.User)
	}
	return out
}

// Describe turns the error of a client on this target into a *ContactError.
func (t *Target) Describe(err error) error {
	if contact := (*ContactError)(nil); err == nil || errors.As(err, &contact) {
		return err
	}
	host, r := t.Access.server.Host, reason.Unreachable
	message := fmt.Sprintf("%s does not answer: %v", host, err)
	var status apierrors.APIStatus
	var failed *url.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		message = host + " does not answer in time"
	case errors.As(err, &status):
		message = fmt.Sprintf("%s answers %d: %v", host, status.Status().Code, err)
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			r = reason.Forbidden
		}
	case errors.As(err, &failed):
		message = fmt.Sprintf("%s does not answer: %v", host, failed.Err)
	}
	return &ContactError{r, t.Clean(message)}
}

package transport

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// What a member, a certificate or a kubeconfig says is text from outside. It is cleaned here, once, before anything of
// the hub sees it: the errors of requests, the Status that an API server answers with, and the one that ends a watch.
// So logs, events, status and metrics can repeat an error as it is.

const (
	// leastSecret is how long a token must be to be hidden in messages: hiding a shorter one would tear words
	// apart.
	leastSecret = 8
	// maxMessage bounds how much of somebody else's words is shown, in bytes, and maxText how much is read: the hub
	// looks for its own words in the refusals of the admission policy.
	maxMessage = 256
	maxText    = 2 << 10
	// maxWord bounds a word of a Status that is no message, such as its reason.
	maxWord = 64
	// eventError is the type of the event that ends a watch with a Status.
	eventError = string(watch.Error)
	statusKind = "Status"
)

// Clean makes a member's words fit to be shown: short, in one line, printable, and without the token, which a member
// could send back.
func (t *Target) Clean(s string) string { return Shorten(t.scrub(s)) }

// scrub is what everything goes through that a member says: see Clean.
func (t *Target) scrub(s string) string {
	s = hide(s, t.Access.token)
	for _, token := range t.earlier {
		s = hide(s, token)
	}
	return printable(s, maxText)
}

// hide takes a token out of a text.
func hide(s, token string) string {
	if len(token) >= leastSecret {
		s = strings.ReplaceAll(s, token, "[token]")
	}
	return s
}

// Shorten makes a text fit to be shown: short, in one line, and printable.
func Shorten(s string) string { return printable(s, maxMessage) }

// printable is a text in one line, without what steers a terminal, turns the direction of a text or hides, and with at
// most so many bytes.
func printable(s string, most int) string {
	cut := len(s) > most
	if cut {
		s = strings.ToValidUTF8(s[:most], "")
	}
	s = strings.Map(func(r rune) rune {
		switch {
		case r == unicode.ReplacementChar:
			return '?'
		case unicode.IsGraphic(r):
			return r
		default:
			return ' '
		}
	}, strings.ToValidUTF8(s, "?"))
	if cut {
		s += "…"
	}
	return s
}

// CleanError is an error with a clean text. It still is what it wraps.
type CleanError struct {
	text string
	err  error
}

func (e *CleanError) Error() string { return e.text }
func (e *CleanError) Unwrap() error { return e.err }

// cleanError cleans the text of an error.
func cleanError(err error, clean func(string) string) error {
	text := err.Error()
	if cleaned := clean(text); cleaned != text {
		return &CleanError{text: cleaned, err: err}
	}
	return err
}

// cleanStatus returns the body of an answer that is an error: a clean Status in JSON, or else a clean text.
func cleanStatus(body []byte, contentType string, code int, clean func(string) string) (cleaned []byte, cleanType string) {
	var status metav1.Status
	decoded := false
	switch {
	case isProtobuf(contentType):
		decoded = decodeStatus(body, &status)
	case isJSON(contentType):
		decoded = json.Unmarshal(body, &status) == nil && status.Kind == statusKind
	}
	if !decoded {
		return []byte(clean(string(body))), textType
	}
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	status.ListMeta = metav1.ListMeta{}
	status.Status, status.Code = metav1.StatusFailure, int32(code)
	tidy(&status, clean)
	cleaned, err := json.Marshal(status)
	if err != nil {
		return nil, textType // plain data always marshals
	}
	return cleaned, jsonType
}

// decodeStatus decodes a Status in Kubernetes' envelope.
func decodeStatus(body []byte, status *metav1.Status) bool {
	s := &sieve{from: bufio.NewReader(bytes.NewReader(body))}
	_, err := s.envelope(int64(len(body)), func(string) message { return ofStatus })
	return err == nil && status.Unmarshal(s.kept) == nil
}

// tidy cleans all that a Status says.
func tidy(s *metav1.Status, clean func(string) string) {
	word := func(w string) string {
		w = clean(w)
		if len(w) > maxWord {
			return strings.ToValidUTF8(w[:maxWord], "")
		}
		return w
	}
	s.Message, s.Reason = clean(s.Message), metav1.StatusReason(word(string(s.Reason)))
	d := s.Details
	if d == nil {
		return
	}
	d.Name, d.Group, d.Kind, d.UID = clean(d.Name), word(d.Group), word(d.Kind), ""
	d.RetryAfterSeconds = min(max(d.RetryAfterSeconds, 0), longestRetryAfter)
	d.Causes = d.Causes[:min(len(d.Causes), 4)]
	for i := range d.Causes {
		c := &d.Causes[i]
		c.Type, c.Message, c.Field = metav1.CauseType(word(string(c.Type))), clean(c.Message), word(c.Field)
	}
}

// cleanWatchError returns a clean Status that ends a watch, in Kubernetes' envelope. It gets what was kept of one. Without
// one, the watch ends because its informer has to list everything again.
func cleanWatchError(kept []byte, clean func(string) string) ([]byte, error) {
	status := metav1.Status{Reason: metav1.StatusReasonExpired, Code: http.StatusGone}
	if len(kept) > 0 {
		status = metav1.Status{}
		if err := status.Unmarshal(kept); err != nil {
			return nil, fmt.Errorf("%w: it is no Status (%w)", errMalformed, err)
		}
	}
	status.Status = metav1.StatusFailure
	tidy(&status, clean)
	raw, err := status.Marshal()
	if err != nil {
		return nil, err
	}
	return enclose("v1", statusKind, raw), nil
}

const (
	protobufType = "application/vnd.kubernetes.protobuf"
	jsonType     = "application/json"
	textType     = "text/plain; charset=utf-8"
)

// protobufMagic begins each object that Kubernetes encodes in protobuf.
var protobufMagic = []byte("k8s\x00")

// isProtobuf reports whether a Content-Type is that of Kubernetes' protobuf.
func isProtobuf(contentType string) bool {
	t, _, err := mime.ParseMediaType(contentType)
	return err == nil && t == protobufType
}

// isJSON reports whether a Content-Type is JSON, or not given.
func isJSON(contentType string) bool {
	if contentType == "" {
		return true
	}
	t, _, err := mime.ParseMediaType(contentType)
	return err == nil && (t == jsonType || strings.HasSuffix(t, "+json"))
}

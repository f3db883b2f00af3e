package transport

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What a member, a certificate or a kubeconfig says is text from outside. It is cleaned here, once, before anything of
// the hub sees it: the errors of requests, the Status that an API server answers with, and the one that ends a watch.
// So logs, events, status and metrics can repeat an error as it is.

// MaxCauses is how many causes of an error are kept. They show a client that it asked for a version of the future, or
// which fields others have applied. There may be more.
const MaxCauses = 16

const (
	// leastSecret is how long a token must be to be hidden in messages.
	leastSecret = 8
	// maxMessage bounds how much of a text from outside is shown, in bytes, and maxText how much is read: the hub
	// looks for its own words in the refusals of the admission policy.
	maxMessage = 256
	maxText    = 2 << 10
	// maxWord bounds a word of a Status that is no message, such as its reason.
	maxWord    = 64
	statusKind = "Status"
)

// Clean makes a member's words fit to be shown: short, in one line, printable, and without the token, which a member
// could send back.
func (t *Target) Clean(s string) string { return Shorten(t.scrub(s)) }

// scrub is what everything goes through that a member says: see Clean. Hiding a short token would tear words apart.
func (t *Target) scrub(s string) string {
	for _, token := range t.tokens {
		if len(token) >= leastSecret {
			s = strings.ReplaceAll(s, token, "[token]")
		}
	}
	return printable(s, maxText)
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
func cleanStatus(body []byte, contentType string, code int, clean func(string) string) (cleaned []byte,
	cleanType string) {
	var said metav1.Status
	decoded := false
	switch mediaType(contentType) {
	case protobufType:
		decoded = decodeStatus(body, &said)
	case jsonType, "":
		decoded = json.Unmarshal(body, &said) == nil && said.Kind == statusKind
	}
	if decoded {
		said.Code = int32(code)
		status := tidy(said, clean)
		if cleaned, err := json.Marshal(status); err == nil {
			return cleaned, jsonType
		}
	}
	return []byte(clean(string(body))), textType
}

// decodeStatus decodes a Status in Kubernetes' envelope.
func decodeStatus(body []byte, status *metav1.Status) bool {
	object, err := unwrap(body)
	if err != nil {
		return false
	}
	kept, _, err := ofStatus.sieve(nil, object)
	return err == nil && status.Unmarshal(kept) == nil
}

// tidy returns the clean part of a Status that is kept. It is a failure.
func tidy(said metav1.Status, clean func(string) string) *metav1.Status {
	word := func(w string) string {
		w = clean(w)
		return strings.ToValidUTF8(w[:min(len(w), maxWord)], "")
	}
	s := &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: statusKind, APIVersion: "v1"}, Status: metav1.StatusFailure, Code: said.Code,
		Message: clean(said.Message), Reason: metav1.StatusReason(word(string(said.Reason))),
	}
	if said.Details != nil {
		s.Details = &metav1.StatusDetails{}
		for _, c := range said.Details.Causes[:min(len(said.Details.Causes), MaxCauses)] {
			s.Details.Causes = append(s.Details.Causes, metav1.StatusCause{
				Type: metav1.CauseType(word(string(c.Type))), Message: Shorten(clean(c.Message)), Field: Shorten(clean(c.Field)),
			})
		}
	}
	return s
}

// expired is the Status after which an informer lists everything again.
var expired, _ = (&metav1.Status{Reason: metav1.StatusReasonExpired, Code: http.StatusGone}).Marshal() // plain data

// cleanWatchError returns what was kept of the Status that ends a watch, cleaned and in Kubernetes' envelope.
func cleanWatchError(kept []byte, clean func(string) string) ([]byte, error) {
	var said metav1.Status
	if err := said.Unmarshal(kept); err != nil {
		return nil, fmt.Errorf("%w: it is no Status (%w)", errMalformed, err)
	}
	raw, err := tidy(said, clean).Marshal()
	return enclose("v1", statusKind, raw), err
}

const (
	protobufType = "application/vnd.kubernetes.protobuf"
	jsonType     = "application/json"
	textType     = "text/plain; charset=utf-8"
)

// protobufMagic begins each object that Kubernetes encodes in protobuf.
var protobufMagic = []byte("k8s\x00")

// mediaType returns the type in a Content-Type, without its parameters. Any dialect of JSON is JSON.
func mediaType(contentType string) string {
	t, _, err := mime.ParseMediaType(contentType)
	switch {
	case err != nil && contentType != "":
		return textType
	case strings.HasSuffix(t, "+json"):
		return jsonType
	}
	return t
}

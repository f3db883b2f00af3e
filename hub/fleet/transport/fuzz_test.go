package transport

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// FuzzSieve has whatever a member sends sieved. What is kept is no larger, can be decoded, and loses nothing more in a
// second sieve.
func FuzzSieve(f *testing.F) {
	for path := range kinds {
		for _, list := range []bool{false, true} {
			q := question{kind: kinds[path], path: path, list: list}
			f.Add(path, list, enclose(q.apiVersion, q.name, marshalled(filled(f, q))))
		}
	}
	f.Add(Namespaces, false, []byte("k8s\x00"))
	f.Add(Leases, true, enclose("v1", "Status", marshalled(&metav1.Status{Message: "no"})))
	f.Fuzz(func(t *testing.T, path string, list bool, body []byte) {
		k, known := kinds[path]
		if !known {
			return
		}
		r := receipt{question: question{kind: k, path: path, list: list}}
		once, err := r.sieveAll(t, body)
		if err != nil {
			return
		}
		if extra := len(once) - len(body); extra > len(enclose(k.apiVersion, k.name+"List", nil)) {
			t.Fatalf("%q became %q", body, once)
		}
		if twice, err := r.sieveAll(t, once); err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%q became %q, and then %q: %v", body, once, twice, err)
		}
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(once, nil, nil); err != nil {
			t.Fatalf("%q became %q: %v", body, once, err)
		}
	})
}

// FuzzCleanStatus has whatever a member answers as an error cleaned.
func FuzzCleanStatus(f *testing.F) {
	f.Add([]byte(`{"kind":"Status","message":"I got `+secretText+` \u001b[31m"}`), true)
	f.Add([]byte("\x1b[31m"+secretText), false)
	f.Add(enclose("v1", "Status", marshalled(&metav1.Status{Message: secretText})), true)
	tg := NewTarget(Access{token: secretText}, nil)
	f.Fuzz(func(t *testing.T, body []byte, _ bool) {
		for _, contentType := range []string{protobufType, jsonType, "text/html"} {
			cleaned, cleanType := cleanStatus(body, contentType, 500, tg.scrub)
			text := string(cleaned)
			if cleanType == jsonType {
				var s metav1.Status
				musttest.Do(t, json.Unmarshal(cleaned, &s))
				text = s.Message + string(s.Reason)
			}
			if strings.Contains(text, secretText) || strings.ContainsAny(text, "\x00\x1b\n\r\u202e") ||
				!utf8.ValidString(text) || len(text) > 2*maxText {
				t.Fatalf("%q became %q", body, text)
			}
		}
	})
}

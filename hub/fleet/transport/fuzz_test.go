package transport

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// FuzzWeigh has whatever a member sends weighed. It must be decodable within a small multiple of its weight.
func FuzzWeigh(f *testing.F) {
	f.Add([]byte(`{"items":[{},{}]}`))
	f.Add(enveloped(f, &corev1.NamespaceList{Items: make([]corev1.Namespace, 3)}))
	f.Add(enveloped(f, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Finalizers: []string{"a", "b"}}}))
	f.Add([]byte("k8s\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, contentType := range []string{protobufType, jsonType} {
			if weigh(data, contentType) < int64(len(data)) {
				t.Fatalf("%q weighs less than it has bytes", data)
			}
		}
		weight := weighProtobuf(data)
		var unknown runtime.Unknown
		var list corev1.NamespaceList
		if len(data) > 4 && unknown.Unmarshal(data[4:]) == nil && list.Unmarshal(unknown.Raw) == nil && string(data[:4]) == "k8s\x00" {
			if least := int64(len(list.Items)) * objectWeight; weight < least {
				t.Fatalf("%d items weigh %d", len(list.Items), weight)
			}
		}
	})
}

// FuzzCleanStatus has whatever a member answers as an error cleaned.
func FuzzCleanStatus(f *testing.F) {
	f.Add([]byte(`{"kind":"Status","message":"I got `+secretText+` \u001b[31m"}`), true)
	f.Add([]byte("\x1b[31m"+secretText), false)
	f.Add(enveloped(f, &metav1.Status{Message: secretText}), true)
	tg := &Target{Access: Access{token: secretText}}
	f.Fuzz(func(t *testing.T, body []byte, _ bool) {
		for _, contentType := range []string{protobufType, jsonType, "text/html"} {
			cleaned, cleanType := cleanStatus(body, contentType, 500, tg.scrub)
			text := string(cleaned)
			if cleanType == jsonType {
				var s metav1.Status
				if err := json.Unmarshal(cleaned, &s); err != nil {
					t.Fatal(err)
				}
				text = s.Message + string(s.Reason)
			}
			if strings.Contains(text, secretText) || strings.ContainsAny(text, "\x00\x1b\n\r\u202e") || !utf8.ValidString(text) || len(text) > 2*maxText {
				t.Fatalf("%q became %q", body, text)
			}
		}
	})
}

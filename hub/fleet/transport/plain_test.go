package transport

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// Objects of any kind are read in JSON, each within a bound.
func TestAPlainObjectIsBounded(t *testing.T) {
	const database = "/apis/example.com/v1/namespaces/shop/databases/a"
	fits := append([]byte(`{"a":"`), bytes.Repeat([]byte{'a'}, maxLarge-8)...)
	fits = append(fits, `"}`...)
	for name, test := range map[string]struct {
		path, accept, contentType string
		body                      []byte
		want                      error
	}{
		"an object":                    {database, Plain, jsonType, fits, nil},
		"one that is larger":           {database, Plain, jsonType, append([]byte(" "), fits...), ErrTooLarge},
		"one in protobuf":              {database, Plain, protobufType, fits, errMalformed},
		"one that may be in protobuf":  {database, Plain + "," + protobufType, jsonType, fits, errUnlisted},
		"a list":                       {"/apis/example.com/v1/databases", Plain, jsonType, fits, errUnlisted},
		"one of a kind that is sieved": {"/api/v1/namespaces/shop", Plain, jsonType, fits, nil},
	} {
		l := newTestTransport()
		s := apiServer(t, true, says(test.contentType, test.body))
		l.Lead(targetTo(t, accessTo(t, s, "", secretText), nil))
		req := musttest.Get(
			http.NewRequestWithContext(t.Context(), http.MethodGet, "https://east.prod.invalid"+test.path, nil),
		)(t)
		req.Header.Set("Accept", test.accept)
		resp, err := l.Tenants().RoundTrip(req)
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
		if err == nil {
			defer func() { _ = resp.Body.Close() }()
			if body, _ := io.ReadAll(resp.Body); !bytes.Equal(body, test.body) {
				t.Errorf("%s: %d bytes come of %d", name, len(body), len(test.body))
			}
		}
	}
}

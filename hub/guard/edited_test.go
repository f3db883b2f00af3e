package guard_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/hub/guard"
)

// lister answers lists with pages of one object each.
type lister struct {
	t     *testing.T
	names []string // of policies: on the last page there is no next one
	code  int
	text  string // instead of a page
	asked map[string]int
}

func (l *lister) RoundTrip(req *http.Request) (*http.Response, error) {
	resource, query := path.Base(req.URL.Path), req.URL.Query()
	n := l.asked[resource]
	l.asked[resource]++
	if want := fmt.Sprint(n); n > 0 && query.Get("continue") != want {
		l.t.Errorf("page %q was asked for, want %s", query.Get("continue"), want)
	}
	if !strings.Contains(req.Header.Get("Accept"), "PartialObjectMetadataList") || query.Get("labelSelector") != "app.kubernetes.io/managed-by=leasecast" {
		l.t.Errorf("asked %s for %s", req.URL, req.Header.Get("Accept"))
	}
	var page metav1.PartialObjectMetadataList
	if resource == policies && n < len(l.names) {
		page.Items = []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: l.names[n], ResourceVersion: fmt.Sprint(n + 5)}}}
		if page.Continue = fmt.Sprint(n + 1); n == len(l.names)-1 {
			page.Continue = ""
		}
	}
	text, err := json.Marshal(page)
	if l.text != "" {
		text = []byte(l.text)
	}
	return &http.Response{StatusCode: l.code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(string(text))), Request: req}, err
}

func TestVersionsAreReadPageByPage(t *testing.T) {
	forbidden := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`
	many := make([]string, 30)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	for name, test := range map[string]struct {
		lister
		want      map[string]string // nil: any
		pages     int
		err       bool
		forbidden bool
	}{
		"none":                    {lister{code: 200}, map[string]string{}, 1, false, false},
		"a page":                  {lister{code: 200, names: many[:1]}, map[string]string{policies + "/0": "5"}, 1, false, false},
		"two pages":               {lister{code: 200, names: many[:2]}, map[string]string{policies + "/0": "5", policies + "/1": "6"}, 2, false, false},
		"more than anybody wants": {lister{code: 200, names: many}, nil, 20, false, false},
		"a refusal":               {lister{code: 403, text: forbidden}, nil, 1, true, true},
		"no list":                 {lister{code: 200, text: "?"}, nil, 1, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := test.lister
			l.t, l.asked = t, map[string]int{}
			client, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: "http://member"}, &http.Client{Transport: &l})
			if err != nil {
				t.Fatal(err)
			}
			got, err := guard.Versions(t.Context(), client)
			if (err != nil) != test.err || errors.Is(err, guard.ErrForbidden) != test.forbidden {
				t.Fatalf("the error is %v", err)
			}
			if test.want != nil && !maps.Equal(got, test.want) {
				t.Errorf("the versions are %v, want %v", got, test.want)
			}
			if l.asked[policies] != test.pages || !test.err && l.asked[bindings] != 1 {
				t.Errorf("pages: %v", l.asked)
			}
		})
	}
}

package hostile

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const cronJobs = "/apis/batch/v1/namespaces/shop/cronjobs"

// answering is an API server that answers everything alike.
func answering(status int, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
}

// envelope begins as an object of a kind does in protobuf.
func envelope(t *testing.T, apiVersion, kind string) string {
	t.Helper()
	data, err := (&runtime.Unknown{
		TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind},
		Raw:      []byte("raw"),
	}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return "k8s\x00" + string(data)
}

func TestWhatAHubReadsIsFoundByItsRequests(t *testing.T) {
	event, err := (&metav1.WatchEvent{
		Type:   "ADDED",
		Object: runtime.RawExtension{Raw: []byte(envelope(t, "v1", "Namespace"))},
	}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		method, path string
		status       int
		answer       string
		read         string
		kinds        []string
	}{
		"a list in JSON": {
			method: "GET",
			path:   cronJobs + "?limit=20",
			status: 200,
			answer: `{"kind":"CronJobList","apiVersion":"batch/v1","metadata":{}}`,
			read:   "list cronjobs.batch/v1",
			kinds:  []string{"CronJobList"},
		},
		"a list of metadata alone": {
			method: "GET",
			path:   cronJobs,
			status: 200,
			answer: `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1"}`,
			read:   "list cronjobs.batch/v1",
			kinds:  []string{"CronJobList", "PartialObjectMetadataList"},
		},
		"an object in protobuf": {
			method: "GET",
			path:   "/api/v1/namespaces/shop",
			status: 200,
			answer: envelope(t, "v1", "Namespace"),
			read:   "get namespaces.v1",
			kinds:  []string{"Namespace"},
		},
		"a watch in protobuf": {
			method: "GET",
			path:   "/api/v1/namespaces?watch=true",
			status: 200,
			answer: string(event),
			read:   "watch namespaces.v1",
			kinds:  []string{"Namespace"},
		},
		"a watch that shows nothing": {
			method: "GET",
			path:   cronJobs + "?watch=1",
			status: 200,
			read:   "watch cronjobs.batch/v1",
			kinds:  []string{"CronJob"},
		},
		"an object that is not there": {
			method: "GET",
			path:   cronJobs + "/bill",
			status: 404,
			answer: `{"kind":"Status","apiVersion":"v1"}`,
			read:   "get cronjobs.batch/v1",
			kinds:  []string{"CronJob"},
		},
		"an answer to a write": {
			method: "PATCH",
			path:   cronJobs + "/bill/status",
			status: 200,
			answer: `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1"}`,
			read:   "patch cronjobs.batch/v1/status",
			kinds:  []string{"CronJob", "PartialObjectMetadata"},
		},
		"a token": {
			method: "POST",
			path:   "/api/v1/namespaces/a/serviceaccounts/b/token",
			status: 201,
			answer: `{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1"}`,
			read:   "create serviceaccounts.v1/token",
			kinds:  []string{"TokenRequest"},
		},
		"a path that is of no object": {
			method: "GET",
			path:   "/apis",
			status: 200,
			answer: `{"kind":"APIGroupList","apiVersion":"v1"}`,
			read:   "get /apis",
			kinds:  []string{"APIGroupList"},
		},
		"a resource that nobody knows": {"GET", "/apis/example.com/v1/things", 200, `{}`, "list things.example.com/v1", nil},
		"a kind that nobody knows": {
			method: "GET",
			path:   "/apis/example.com/v1/things",
			status: 200,
			answer: `{"kind":"ThingList","apiVersion":"example.com/v1"}`,
			read:   "list things.example.com/v1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var reads Reads
			w := httptest.NewRecorder()
			reads.Recorded(answering(c.status, c.answer)).ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
			if w.Code != c.status || w.Body.String() != c.answer {
				t.Errorf("the answer was changed: %d %s", w.Code, w.Body)
			}
			all := reads.All()
			if len(all) != 1 || all[0].String() != c.read {
				t.Fatalf("the reads are %v: want %s", all, c.read)
			}
			types, err := reads.Types(all[0])
			var kinds []string
			for _, k := range types {
				kinds = append(kinds, k.Kind)
			}
			if !slices.Equal(kinds, c.kinds) || (err == nil) != (c.kinds != nil) {
				t.Errorf("the types are %v, %v: want %v", kinds, err, c.kinds)
			}
			if _, err := NewSpoiler(&reads); (err == nil) != (c.kinds != nil) {
				t.Errorf("it can be spoilt, or not: %v", err)
			}
		})
	}
}

// A read that the hub adds tomorrow, and that it sends for the first time under an attack, is attacked too.
func TestANewReadIsSpoiltBecauseItWasSent(t *testing.T) {
	var reads Reads
	s, err := NewSpoiler(&reads)
	if err != nil {
		t.Fatal(err)
	}
	s.Choose(nil)
	honest := reads.Recorded(answering(200, `{"kind":"CronJobList","apiVersion":"batch/v1"}`))
	for range 4 {
		w := httptest.NewRecorder()
		s.Act(w, httptest.NewRequest("GET", cronJobs, nil), honest)
		if w.Body.Len() > small/2 {
			return
		}
	}
	t.Error("it was not spoilt")
}

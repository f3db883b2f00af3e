package hostile

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const cronJobs = "/apis/batch/v1/namespaces/shop/cronjobs"

// answering is an API server that answers everything alike.
func answering(status int, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
}

func TestWhatAHubReadsIsFoundByItsRequests(t *testing.T) {
	for request, want := range map[string]struct {
		read string
		kind string // empty: nobody knows it
	}{
		"GET " + cronJobs + "?limit=20":                     {"list cronjobs.batch/v1", "CronJobList"},
		"GET " + cronJobs + "/bill":                         {"get cronjobs.batch/v1", "CronJob"},
		"GET " + cronJobs + "?watch=1":                      {"watch cronjobs.batch/v1", "CronJob"},
		"PATCH " + cronJobs + "/bill/status":                {"patch cronjobs.batch/v1/status", "CronJob"},
		"GET /api/v1/namespaces/shop":                       {"get namespaces.v1", "Namespace"},
		"POST /api/v1/namespaces/a/serviceaccounts/b/token": {"create serviceaccounts.v1/token", ""},
		"GET /apis":                       {"get /apis", ""},
		"GET /apis/example.com/v1/things": {"list things.example.com/v1", ""},
	} {
		var reads Reads
		method, path, _ := strings.Cut(request, " ")
		reads.Recorded(answering(200, "")).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, path, nil))
		all := reads.All()
		if len(all) != 1 || all[0].String() != want.read {
			t.Fatalf("%s: the reads are %v: want %s", request, all, want.read)
		}
		types, err := TypesOf(all[0])
		if known := want.kind != ""; (err == nil) != known || known && types[0].Kind != want.kind {
			t.Errorf("%s: the types are %v, %v: want %q", request, types, err, want.kind)
		}
		if _, spoils := NewSpoiler(&reads); (spoils == nil) != (err == nil) {
			t.Errorf("%s: it can be spoilt, or not: %v", request, spoils)
		}
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

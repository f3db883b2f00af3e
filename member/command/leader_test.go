package command

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/leasecast/leasecast/member/membertest"
)

func TestWhatLeaderSays(t *testing.T) {
	cases := map[string]struct {
		happens func(f *membertest.Fake)
		status  int
		want    Answer
	}{
		"where nobody is known": {func(*membertest.Fake) {}, http.StatusServiceUnavailable, Answer{}},
		"in a leader": {func(f *membertest.Fake) { f.Promote(ns); f.Advance(time.Second) }, http.StatusOK,
			Answer{Leads: true, Leader: "here.fake", Epoch: 1, RemainingMilliseconds: 14_000}},
		"in a follower": {func(f *membertest.Fake) { f.Demote(ns) }, http.StatusServiceUnavailable, Answer{Leader: "other.fake", Epoch: 1}},
		"after the term has run out": {func(f *membertest.Fake) { f.Promote(ns); f.Expire() }, http.StatusServiceUnavailable,
			Answer{Leader: "here.fake", Epoch: 1}},
		"less than a millisecond before its end": {func(f *membertest.Fake) { f.Promote(ns); f.Advance(membertest.Duration - time.Microsecond) },
			http.StatusServiceUnavailable, Answer{Leader: "here.fake", Epoch: 1}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := membertest.New()
			tc.happens(f)
			w := httptest.NewRecorder()
			Handler(f, ns).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/leader", nil))
			var got Answer
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			got.Why = ""
			if w.Code != tc.status || got != tc.want {
				t.Errorf("%d %+v, want %d %+v", w.Code, got, tc.status, tc.want)
			}
		})
	}
}

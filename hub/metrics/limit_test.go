package metrics

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/flowcontrol"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// Each token that is let through costs a TokenReview on the management cluster.
func TestTokensAreLimited(t *testing.T) {
	reviews := 0
	asks := func(_ logr.Logger, next http.Handler) (http.Handler, error) {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" {
				reviews++
			}
			next.ServeHTTP(w, r)
		}), nil
	}
	clock := clocktesting.NewFakePassiveClock(start)
	limiter := flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(reviewsPerSecond, reviewsAtOnce, clock)
	handler := musttest.Get(limited(asks, limiter)(logr.Discard(),
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })))(t)
	get := func(token string) int {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Code
	}
	for range 1000 {
		get("made-up")
	}
	if reviews != reviewsAtOnce {
		t.Errorf("1000 tokens cause %d TokenReviews, want %d", reviews, reviewsAtOnce)
	}
	if code := get("made-up"); code != http.StatusTooManyRequests {
		t.Errorf("the next one is answered %d", code)
	}
	if code := get(""); code != http.StatusOK {
		t.Errorf("a request without a token, which asks nobody, is answered %d", code)
	}
	clock.SetTime(start.Add(1e9))
	for range 1000 {
		get("made-up")
	}
	if want := reviewsAtOnce + reviewsPerSecond; reviews != want {
		t.Errorf("after a second there were %d TokenReviews, want %d", reviews, want)
	}
}

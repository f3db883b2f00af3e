package hostile

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// A member whose watches fail is listed now and then, so that no edit stays there for long.
func TestWhatNoWatchShowsIsRepaired(t *testing.T) {
	s := shared
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request){
		"watches expire":            expired,
		"watches end at once":       func(http.ResponseWriter, *http.Request) {},
		"watches end after seconds": endsLater,
		"watches are not answered":  func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			s.restart(t)
			s.front.Play(onWatches(answer))
			defer s.front.Play(nil)
			for range 2 { // the pauses between lists grow
				l, err := s.LeaseIn(t.Context(), far, shop)
				musttest.Do(t, err)
				musttest.Do(t, s.Members[far].Delete(t.Context(), l))
				began := time.Now()
				s.Eventually(t, 2*patience, "its Lease is there again", func(ctx context.Context) error {
					_, err := s.LeaseIn(ctx, far, shop)
					return err
				})
				t.Logf("repaired after %v", time.Since(began))
			}
		})
	}
}

// endsLater ends a watch after two seconds.
func endsLater(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	silent(w, r.WithContext(ctx))
}

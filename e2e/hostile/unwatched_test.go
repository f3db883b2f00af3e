package hostile

import (
	"context"
	"fmt"
	"testing"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/e2e/harness"
)

// A member whose watches do not last is read now and then, so that no edit stays there for long.
func TestWhatNoWatchShowsIsRepaired(t *testing.T) {
	s := shared
	s.restart(t)
	s.front.Play(onWatches(expired))
	defer s.front.Play(nil)
	s.Eventually(t, patience, "the member is shown as it is, and may lead", func(ctx context.Context) error {
		c, err := s.Candidate(ctx, shop, far)
		if err == nil && (c.Reason != reason.Unwatched || !c.Eligible) {
			err = fmt.Errorf("it is shown as %s: %s", c.Reason, c.Message)
		}
		return err
	})
	l, err := s.LeaseIn(t.Context(), far, shop)
	harness.Must(t, err)
	harness.Must(t, s.Members[far].Delete(t.Context(), l))
	s.Eventually(t, patience, "its Lease is there again", func(ctx context.Context) error {
		_, err := s.LeaseIn(ctx, far, shop)
		return err
	})
}

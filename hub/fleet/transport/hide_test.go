package transport

import (
	"fmt"
	"strings"
	"testing"
)

// A member could send back what the hub has sent it earlier.
func TestTokensThatAMemberWasSentBeforeAreHidden(t *testing.T) {
	target := &Target{Access: Access{token: "the-first-token"}}
	for n := range 2 * mostEarlier {
		next := &Target{Access: Access{token: fmt.Sprintf("the-token-number-%d", n)}}
		next.Hide(target)
		next.Hide(nil)
		next.Hide(next)
		target = next
	}
	said := "now the-token-number-15, before that the-token-number-14"
	if got := target.Clean(said); strings.Contains(got, "number") || !strings.HasPrefix(got, "now [token]") {
		t.Errorf("shown is %q", got)
	}
	if len(target.earlier) != mostEarlier {
		t.Errorf("%d are remembered", len(target.earlier))
	}
}

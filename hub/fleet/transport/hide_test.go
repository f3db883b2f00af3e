package transport

import (
	"fmt"
	"strings"
	"testing"
)

// A member could send back what the hub has sent it earlier.
func TestTokensThatAMemberWasSentBeforeAreHidden(t *testing.T) {
	target := NewTarget(Access{token: "the-first-token"}, nil)
	for n := range 2 * maxTokens {
		target = NewTarget(Access{token: fmt.Sprintf("the-token-number-%d", n)}, target)
		target = NewTarget(target.Access, target) // another certificate with the same token
	}
	said := "now the-token-number-17, before that the-token-number-16"
	if got := target.Clean(said); strings.Contains(got, "number") || !strings.HasPrefix(got, "now [token]") {
		t.Errorf("shown is %q", got)
	}
	if len(target.tokens) != maxTokens {
		t.Errorf("%d are hidden", len(target.tokens))
	}
}

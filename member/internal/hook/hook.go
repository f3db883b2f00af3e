// Package hook gives package fed access to what package member does not export.
package hook

import (
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

// NewTerms is set by package member. It returns a fed.Terms, which this package cannot name.
var NewTerms func(clock lease.Clock, skew time.Duration) any

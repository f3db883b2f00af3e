package act

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// An order that cannot be read has no effect, and says why.
func TestWhichActsHold(t *testing.T) {
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	const an = "the annotation leasecast.dev/drain-until is "
	for name, test := range map[string]struct {
		until   string // empty: no annotation
		in      bool
		invalid string
	}{
		"no order":                     {"", false, ""},
		"until later":                  {"2026-03-01T12:00:01Z", true, ""},
		"until later, in another zone": {"2026-03-01T13:30:00+01:00", true, ""},
		"until now":                    {"2026-03-01T12:00:00Z", false, ""},
		"until a year from now":        {"2027-03-01T12:00:00Z", true, ""},
		"until a later year": {"2028-03-01T12:00:00Z", false,
			an + "2028-03-01T12:00:00Z: set it to an instant within a year"},
		"no instant": {"tomorrow", false,
			an + `"tomorrow": set it to an instant like 2026-01-31T18:00:00Z`},
		"a date without a time": {"2026-03-02", false,
			an + `"2026-03-02": set it to an instant like 2026-01-31T18:00:00Z`},
		"a text without end": {strings.Repeat("9", 500), false,
			an + `"` + strings.Repeat("9", 64) + `": set it to an instant like 2026-01-31T18:00:00Z`},
	} {
		t.Run(name, func(t *testing.T) {
			annotations := map[string]string{v1alpha1.DrainReasonAnnotation: "x" + strings.Repeat("ö", 500)}
			if test.until != "" {
				annotations[v1alpha1.DrainUntilAnnotation] = test.until
			}
			d := Drain(annotations).At(now)
			if d.In(now) != test.in || d.Invalid != test.invalid || len(d.Reason) > maxReason ||
				!utf8.ValidString(d.Reason) {
				t.Errorf("drained: %v, invalid: %q, a reason of %d bytes", d.In(now), d.Invalid, len(d.Reason))
			}
		})
	}
}

// Records hold whole microseconds: an instant that is finer would always be later than the one that was counted.
func TestInstantsAreWholeSeconds(t *testing.T) {
	got := Rebalance(map[string]string{v1alpha1.RebalanceAtAnnotation: "2026-03-01T12:00:00.123456789Z"}).Until
	if want := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC); !got.Equal(want) {
		t.Errorf("%v", got)
	}
}

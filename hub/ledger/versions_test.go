package ledger

import (
	"fmt"
	"strings"
	"testing"
)

// A watch shows versions in order.
func TestWatchShowsWhetherAnotherClientWrote(t *testing.T) {
	for name, test := range map[string]struct {
		steps   string // +v: read or written; v: shown by the watch; "-" is a deletion
		foreign bool
	}{
		"nothing yet":   {"", false},
		"this tenure's": {"+1 1", false},
		"its last one, and those between are skipped":  {"+1 +2 +3 1 3", false},
		"it once more, after the watch began again":    {"+1 +2 2 2", false},
		"another client's":                             {"+1 1 2", true},
		"this tenure's, before the answer came":        {"+1 1 2 +2", false},
		"another client's, and this tenure's after it": {"+1 1 2 3 +3", true},
		"a deletion": {"+1 1 -", true},
		"an old one of this tenure, by a restored hub": {"+1 +2 1 2 1", true},
		"the same, before the answer to the last came": {"+1 +2 2 1 +3", true},
		"one that was forgotten":                       {"+1" + strings.Repeat(" +2", mostVersions) + " 1", true},
	} {
		t.Run(name, func(t *testing.T) {
			var v versions
			for step := range strings.FieldsSeq(test.steps) {
				if version, written := strings.CutPrefix(step, "+"); written {
					v.note(version)
				} else {
					v.show(strings.TrimSuffix(step, "-"))
				}
			}
			if got := v.foreign(); got != test.foreign {
				t.Errorf("another client wrote: %v", got)
			}
			if v.foreign() {
				t.Error("it is reported twice")
			}
		})
	}
	var v versions
	for i := range 10 * mostVersions {
		v.note(fmt.Sprint("known", i))
		v.show(fmt.Sprint("other", i))
	}
	if len(v.known) != mostVersions || len(v.others) != mostVersions {
		t.Errorf("remembered: %d and %d versions", len(v.known), len(v.others))
	}
}

package fleet

import (
	"testing"
	"time"

	"github.com/leasecast/leasecast/hub/seal"
)

var (
	ownMark    = seal.Mark("uid", "leasecast-system")
	besideMark = seal.Mark("uid", "platform")
	movedMark  = seal.Mark("another", "platform")
)

func TestWhoServesAFleet(t *testing.T) {
	type look struct {
		mark  string // on the seal from now on
		after time.Duration
	}
	for name, tc := range map[string]struct {
		looks    []look
		here     bool
		other    string
		mayWrite bool
	}{
		"nobody yet":                   {nil, false, "", true},
		"this installation":            {[]look{{ownMark, 0}}, true, "", true},
		"a neighbour":                  {[]look{{besideMark, 0}}, false, "platform", false},
		"a hub that it was moved from": {[]look{{movedMark, 0}}, false, "", true},
		"a neighbour whose mark has just gone": {
			[]look{{besideMark, 0}, {"", otherHubGrace - time.Millisecond}}, false, "platform", false,
		},
		"nobody, once that may be taken at its word": {[]look{{besideMark, 0}, {"", otherHubGrace}}, false, "", true},
		"a neighbour whose mark is back": {
			[]look{{besideMark, 0}, {"", time.Second}, {besideMark, time.Hour}}, false, "platform", false,
		},
		"this installation, after a neighbour": {
			[]look{{besideMark, 0}, {"", time.Hour}, {ownMark, 0}}, true, "", true,
		},
		"nobody, after this installation": {[]look{{ownMark, 0}, {"", 0}}, false, "", true},
		"nobody, long after a neighbour and then this installation": {
			[]look{{besideMark, 0}, {ownMark, 0}, {"", 0}}, false, "", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, c := newTestMember(t)
			m.options.HubID = ownMark
			last := ""
			for _, l := range tc.looks {
				if isNew := m.noteServed(m.key.Fleet, l.mark); isNew != (l.mark != last) || m.noteServed(m.key.Fleet, l.mark) {
					t.Errorf("the mark %q after %q is reported as new: %t, or twice", l.mark, last, isNew)
				}
				last = l.mark
				c.Advance(l.after)
			}
			if here, other := m.Served(m.key.Fleet); here != tc.here || other != tc.other {
				t.Errorf("served here: %v, by %q; want %v, %q", here, other, tc.here, tc.other)
			}
			if got := m.mayWrite(m.key.Fleet); got != tc.mayWrite {
				t.Errorf("may write: %t", got)
			}
			if got := m.mayWrite("another fleet"); !got {
				t.Error("nothing may be written for another fleet")
			}
		})
	}
}

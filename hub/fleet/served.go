package fleet

import (
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/seal"
)

// otherHubGrace is for how long a fleet counts as another installation's after its mark has gone from the
// seal. An installation that is alive restores its mark within that time. So a mark that was removed by
// mistake costs nothing.
const otherHubGrace = 10 * time.Second

// servedBy says who serves a fleet.
type servedBy struct {
	mark  string        // of the seal
	other string        // the mark of another installation here that was on the seal last, or is on it
	gone  lease.Reading // when that mark was found to be gone
}

// ServedBy is the mark of the installation that serves the fleet, as a cache shows it. The mark of another
// installation is returned for a moment after it has gone, too. Without a known one it is empty.
func (s *shared) ServedBy(fleet string) (mark string) {
	now := s.clock.Now()
	s.servedLock.Lock()
	defer s.servedLock.Unlock()
	is := s.served[fleet]
	if is.mark == "" && is.other != "" && now.Boot-is.gone.Boot < otherHubGrace {
		return is.other
	}
	return is.mark
}

// noteServed records the mark of a fleet's seal, and reports whether it has changed.
func (s *shared) noteServed(fleet, mark string) bool {
	now := s.clock.Now()
	s.servedLock.Lock()
	defer s.servedLock.Unlock()
	was := s.served[fleet]
	if was.mark == mark {
		return false
	}
	is := servedBy{mark: mark}
	if _, ok := seal.OtherInstallation(s.options.HubID, was.mark); ok {
		is.other, is.gone = was.mark, now
	}
	s.served[fleet] = is
	return true
}

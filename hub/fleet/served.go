package fleet

import (
	"time"

	"github.com/leasecast/leasecast/hub/seal"
)

// otherHubGrace is for how long a fleet counts as another installation's after its mark has gone from the
// seal. An installation that is alive restores its mark within that time. So a mark that was removed by
// mistake costs nothing.
const otherHubGrace = 10 * time.Second

// served is what the mark on a fleet's seal says, as a cache shows it.
type served struct {
	mark  string
	other string        // the namespace of the other installation here that the mark names, or named before it went
	until time.Duration // boot reading until which that counts after the mark went; zero while it is there
}

// Served returns who serves a fleet, as a cache shows it: whether this installation does, and otherwise the namespace
// of another one on this management cluster that does. This is the one check for two installations. Where other is not
// empty, nothing is decided or written for the fleet.
func (s *shared) Served(fleet string) (here bool, other string) {
	now := s.clock.Now().Boot
	s.servedLock.Lock()
	defer s.servedLock.Unlock()
	is := s.served[fleet]
	if is.until != 0 && now >= is.until {
		return false, ""
	}
	return is.mark == s.options.HubID, is.other
}

// noteServed records the mark of a fleet's seal, and reports whether it has changed.
func (s *shared) noteServed(fleet, mark string) bool {
	now := s.clock.Now().Boot
	s.servedLock.Lock()
	defer s.servedLock.Unlock()
	was := s.served[fleet]
	if was.mark == mark {
		return false
	}
	is := served{mark: mark}
	is.other, _ = seal.OtherInstallation(s.options.HubID, mark)
	if mark == "" {
		is.other, is.until = was.other, now+otherHubGrace
	}
	s.served[fleet] = is
	return true
}

package fleet

import (
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/fleet/wake"
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

// ServedBy is the mark of the installation that serves the fleet, as a cache shows it, and that of another
// installation also for a moment after it has gone. It is empty if there is none.
func (p *Provider) ServedBy(fleet string) (mark string) {
	now := p.clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.served[fleet].at(now)
}

func (s servedBy) at(now lease.Reading) string {
	if s.mark == "" && s.other != "" && now.Boot-s.gone.Boot < otherHubGrace {
		return s.other
	}
	return s.mark
}

// mayWrite reports whether this replica may write for a fleet: it has the right to write, and no other
// installation serves the fleet.
func (p *Provider) mayWrite(fleet string) bool {
	_, other := seal.OtherInstallation(p.options.HubID, p.ServedBy(fleet))
	return !other && p.options.MayWrite()
}

// sealKey is the key of a fleet's seal; empty if it is not known.
func (p *Provider) sealKey(fleet string) seal.Key {
	_, key := p.secrets.Seal(fleet)
	return key
}

// noteSeal notes what the seal of a fleet said when it was seen last.
func (r runner) noteSeal(fleet string) {
	mark, _ := r.secrets.Seal(fleet)
	if !r.noteServed(fleet, mark) {
		return
	}
	if namespace, ok := seal.OtherInstallation(r.options.HubID, mark); ok {
		r.log.Info("Another installation of the hub serves the fleet, so this one changes nothing there", "fleet", fleet, "hubNamespace", namespace)
	}
}

// noteServed notes the mark of a fleet's seal, and reports whether it has changed.
func (p *Provider) noteServed(fleet, mark string) bool {
	now := p.clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.served[fleet]
	if was.mark == mark {
		return false
	}
	is := servedBy{mark: mark}
	if _, ok := seal.OtherInstallation(p.options.HubID, was.mark); ok {
		is.other, is.gone = was.mark, now
	}
	p.served[fleet] = is
	for key, m := range p.members {
		if key.Fleet == fleet {
			p.changed.add(key)
			wake.Wake(m.wake)
			wake.Wake(m.wakeProbe)
		}
	}
	return true
}

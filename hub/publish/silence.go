package publish

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/leasecast/leasecast/api/lease"
)

// silence tracks whether a member answers. While it does not, one syncer sends requests and the others are parked. So
// silence costs one request at a time.
type silence struct {
	Options

	mu         sync.Mutex                     // guards what follows; never held across I/O
	lastAnswer time.Duration                  // boot reading
	silent     bool                           // the last request was not answered, or there was none
	prober     *types.NamespacedName          // the one syncer that sends requests
	parked     []types.NamespacedName         // the syncers that wait for an answer, or to become the prober
	isParked   sets.Set[types.NamespacedName] // the same
}

// noteOutcome records the outcome of a request, and reports it for the member's health.
func (s *silence) noteOutcome(write bool, sent lease.Reading, err error) {
	v := outcomeOf(err)
	s.mu.Lock()
	if s.silent = v == ambiguous; !s.silent {
		s.lastAnswer = s.Clock.Now().Boot
		s.prober = nil
		s.unpark(len(s.parked))
	}
	s.mu.Unlock()
	if v == conflict {
		err = nil // the member works: it rejects an outdated request
	}
	s.Report(write, sent, err)
}

// admit has a syncer decide, unless another one is the prober of a silent member: then this one is parked. decide gets
// whether the member has just answered, and returns whether it is about to send a request. It is then the prober of a
// silent member. A syncer without a request leaves that to another one.
func (s *silence) admit(key types.NamespacedName, now lease.Reading, decide func(answered bool) (asks bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.silent && s.prober != nil && *s.prober != key {
		if !s.isParked.Has(key) {
			s.isParked.Insert(key)
			s.parked = append(s.parked, key)
		}
		return
	}
	asks := decide(!s.silent && now.Boot-s.lastAnswer <= answeredWithin)
	switch {
	case !s.silent:
	case asks:
		s.prober = &key
	default:
		s.prober = nil
		s.unpark(min(1, len(s.parked)))
	}
}

// unpark enqueues n of the parked syncers, in the order in which they came. The caller holds mu.
func (s *silence) unpark(n int) {
	for _, key := range s.parked[:n] {
		s.isParked.Delete(key)
		s.Queue.Add(key)
	}
	s.parked = s.parked[n:]
}

// holds reports whether a syncer is the prober, or is parked.
func (s *silence) holds(key types.NamespacedName) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isParked.Has(key) || s.prober != nil && *s.prober == key
}

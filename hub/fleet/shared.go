package fleet

import (
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/fleet/secrets"
	"github.com/leasecast/leasecast/hub/rights"
	"github.com/leasecast/leasecast/hub/seal"
)

// shared is what all members use.
type shared struct {
	options Options
	rights  rights.Rights
	clock   lease.Clock
	timers  clock.WithDelayedExecution
	log     logr.Logger
	mgr     mcmanager.Manager
	secrets *secrets.Store
	pauses  pauses
	read    atomic.Int64 // bytes of answers that are being read: see transport.Room

	// work has the keys whose objects in the hub changed, and changed those that subscribers are notified of.
	work, changed workqueue.TypedInterface[Key]

	servedLock sync.Mutex
	served     map[string]served // by fleet
}

// mayWrite reports whether this replica may write for a fleet: it has the right to write, and no other
// installation serves the fleet.
func (s *shared) mayWrite(fleet string) bool {
	_, other := s.Served(fleet)
	return other == "" && s.options.MayWrite()
}

// sealKey is the key of a fleet's seal; empty if it is not known.
func (s *shared) sealKey(fleet string) seal.Key {
	_, key := s.secrets.Seal(fleet)
	return key
}

// isElected reports whether the controllers of this replica run, or are about to.
func (s *shared) isElected() bool {
	select {
	case <-s.mgr.Elected():
		return true
	default:
		return false
	}
}

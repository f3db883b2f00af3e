// Package locks converts the locks that a policy fences into the Leases and the durations that count.
package locks

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

// Lock is a Lease that a controller elects itself with.
type Lock struct {
	types.NamespacedName
	Elector
}

// ID identifies the Lease of the lock in the annotation v1alpha1.OpenLocksAnnotation: 12 hexadecimal digits.
func (l Lock) ID() string { return lease.LockID(l.String()) }

// Elector holds the durations of a lock's elector.
type Elector struct {
	Lease, Renew, Retry time.Duration
	Request             time.Duration // the longest request of its client
	Release             time.Duration // the longest release of a lost lock, while its work goes on; 0: no release
}

// StopTime bounds how long the holder of a lock works after its last request was admitted. The sources are
// tools/leaderelection/leaderelection.go of client-go v0.26.15 to v0.36.3, and elector_test.go measures it.
//
//   - The request was a renewal. Its answer takes at most Request or Renew, whichever is shorter (renew). One Retry
//     later the elector begins the next renewal, which fails after Renew.
//   - Or the request took the lock. Only Request bounds the answer (acquire). The first renewal begins at once, and
//     fails after Renew.
//   - In both cases the elector may then release the lock, within Release, before Run cancels the work.
//
// The sum of all four covers both.
func (e Elector) StopTime() time.Duration { return e.Request + e.Retry + e.Renew + e.Release }

// minPatience is the least Patience.
const minPatience = 2 * time.Minute

// Patience is how long a lock may have no holder in a cluster that leads, before people are warned. A program that
// was restarted takes its lock within that time, too.
func (e Elector) Patience() time.Duration { return max(minPatience, 3*e.Lease) }

// Of returns the locks that a policy fences.
func Of(f *v1alpha1.Fencing) (locks []Lock) {
	if f == nil {
		return nil
	}
	for _, asked := range f.LeaderElectionLocks {
		locks = append(locks, Lock{types.NamespacedName{Namespace: asked.Namespace, Name: asked.Name}, electorOf(asked)})
	}
	return locks
}

const (
	// serverLimit is when an API server ends a request by itself: --request-timeout, RequestTimeout in
	// pkg/server/config.go of k8s.io/apiserver v0.36.3.
	serverLimit = time.Minute
	// releasing is the number of requests of one release: a read and a write from client-go v0.34 on, before that a
	// write.
	releasing = 2
)

// electorOf assumes the worst case for durations that a policy omits.
func electorOf(asked v1alpha1.LockFence) Elector {
	e := Elector{
		Lease: seconds(asked.LeaseDurationSeconds), Renew: seconds(asked.RenewDeadlineSeconds),
		Retry: seconds(asked.RetryPeriodSeconds), Request: seconds(asked.RequestTimeoutSeconds),
	}
	if e.Request == 0 {
		e.Request = max(serverLimit, e.Renew)
	}
	if asked.ReleaseTimeoutSeconds == nil {
		e.Release = releasing * e.Request
	} else {
		e.Release = seconds(*asked.ReleaseTimeoutSeconds)
	}
	return e
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

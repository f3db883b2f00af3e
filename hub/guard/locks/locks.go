// Package locks turns the locks that a policy fences into the Leases and the durations that count.
package locks

import (
	"cmp"
	"fmt"
	"strings"
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

// Elector are the durations of whoever takes a lock.
type Elector struct {
	Lease, Renew, Retry time.Duration
	Request             time.Duration // the longest request; 0: half of Renew, as client-go and controller-runtime set it
	// Releases: the elector releases the lock that it has lost, and its work goes on until then (ReleaseOnCancel).
	Releases bool
}

// StopTime is how long the holder of a lock may go on after its last admitted renewal. The answer may take as long as a
// request. A retry period later the elector begins the next renewal, which fails after the renew deadline. Then it may
// release the lock, for one more renew deadline, before it cancels the work.
func (e Elector) StopTime() time.Duration {
	stop := e.Renew + cmp.Or(e.Request, e.Renew/2) + e.Retry
	if e.Releases {
		stop += e.Renew
	}
	return stop
}

// minPatience is how long at least a lock may be held by nobody.
const minPatience = 2 * time.Minute

// Patience is how long a lock may be held by nobody in a cluster that leads, before people are warned. By then a program
// that was started again has taken it, too.
func (e Elector) Patience() time.Duration { return max(minPatience, 3*e.Lease) }

// Of returns those that a policy fences, each once. Of a lock that is asked for by its controller and again by its name,
// the longer stop time counts.
func Of(f *v1alpha1.Fencing) (locks []Lock) {
	if f == nil {
		return nil
	}
	at := map[types.NamespacedName]int{}
	for _, asked := range f.LeaderElectionLocks {
		l := resolve(asked)
		i, twice := at[l.NamespacedName]
		switch {
		case !twice:
			at[l.NamespacedName] = len(locks)
			locks = append(locks, l)
		case l.StopTime() > locks[i].StopTime():
			locks[i] = l
		}
	}
	return locks
}

// resolve looks a well-known controller up. Its lock may be in another namespace than usual.
func resolve(asked v1alpha1.LockFence) Lock {
	l, known := wellKnown[asked.Controller]
	if !known {
		return Lock{
			types.NamespacedName{Namespace: asked.Namespace, Name: asked.Name},
			Elector{
				Lease: seconds(asked.LeaseDurationSeconds), Renew: seconds(asked.RenewDeadlineSeconds),
				Retry: seconds(asked.RetryPeriodSeconds), Request: seconds(asked.RequestTimeoutSeconds),
			},
		}
	}
	l.Namespace = cmp.Or(asked.Namespace, l.Namespace)
	return l
}

// ours is how the names of Leases begin that the hub writes for itself. CRDs of earlier versions have admitted them.
const ours = "leasecast-"

// Check says what no API server can see in a policy: it does not know the locks of well-known controllers.
func Check(o *v1alpha1.LeadershipPolicy) error {
	if o.Spec.Fencing == nil {
		return nil
	}
	for _, asked := range o.Spec.Fencing.LeaderElectionLocks {
		if _, known := wellKnown[asked.Controller]; asked.Controller != "" && !known {
			return fmt.Errorf("the controller %s of leaderElectionLocks is not known to this version of the hub: name its lock and durations", asked.Controller)
		}
		l := resolve(asked)
		// In another namespace, too: before the hub has written the Lease once, API servers refuse all of that name.
		if l.Name == o.LeaseName() {
			return fmt.Errorf("the lock %s has the name of the Lease that the hub writes itself: take it out of leaderElectionLocks, or choose another leaseName", l)
		}
		if strings.HasPrefix(l.Name, ours) {
			return fmt.Errorf("the Lease %s is the hub's own by its name, so it is no lock of a controller: take it out of leaderElectionLocks", l)
		}
	}
	return nil
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

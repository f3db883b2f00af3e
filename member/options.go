package member

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock"
)

// ErrMisused reports that the program uses this package in a way that cannot work. A retry does not help. The error
// says what to change.
var ErrMisused = errors.New("member is used wrongly")

// Options configures how a Member watches and judges. The zero value is a sound default.
type Options struct {
	// Namespaces are the namespaces to watch. Each has its own watch, so a Role in each with list and watch on leases
	// (coordination.k8s.io) is enough. If empty, one watch covers the cluster and needs a ClusterRole with the same rules.
	Namespaces []string
	// MaxClockSkew is ε: twice the largest error of any clock that takes part. A Lease whose renewTime is further in the
	// future is not believed. The policy's maxClockSkewMilliseconds travels in the Lease, and the smaller of the two
	// counts. So this is the most that a reader allows, whatever an edit of a Lease says. It counts alone for a Lease
	// without that annotation. At most 1h. Default: 1s.
	MaxClockSkew time.Duration
	// Clock judges the terms. Its method Now returns a reading of the wall clock and of a clock that counts in suspend and
	// is never set. A program leaves it empty. Tests take a clock from package api/lease/clock/clocktest, or use
	// membertest.New, which has its own. Default: the clocks of this machine, clock.System of package api/lease/clock.
	Clock lease.Clock
	// Logger receives the leader and every change of it, and each problem. Default: klog's, as in client-go. A logger
	// without a sink, as logr.Discard returns, also selects the default.
	Logger logr.Logger
	// Registration registers the Member as a reader that reports when it has stopped, for handovers without a gap.
	// Default: nil, not registered.
	Registration *Registration
	// StaleAfter is how long a watch may have shown nothing before Healthz fails. After half of it at most a list follows,
	// see Member.Healthz. So a Member that was never started, or has no rights, is healthy for that long. At least 10s.
	// Default: 2m.
	StaleAfter time.Duration
}

const (
	defaultSkew       = time.Second
	defaultStaleAfter = 2 * time.Minute
	leastStaleAfter   = 10 * time.Second
)

func (o *Options) complete() error {
	if o.MaxClockSkew == 0 {
		o.MaxClockSkew = defaultSkew
	}
	if o.Logger.GetSink() == nil {
		o.Logger = klog.Background()
	}
	if o.StaleAfter == 0 {
		o.StaleAfter = defaultStaleAfter
	}
	if o.Clock == nil {
		o.Clock = &clock.System{}
	}
	switch {
	case o.MaxClockSkew < 0:
		return fmt.Errorf("%w: MaxClockSkew is %v: must not be negative", ErrMisused, o.MaxClockSkew)
	case o.MaxClockSkew > lease.MaxSkew:
		return fmt.Errorf("%w: MaxClockSkew is %v: no policy allows more than %v", ErrMisused, o.MaxClockSkew, lease.MaxSkew)
	case o.StaleAfter < leastStaleAfter:
		return fmt.Errorf("%w: StaleAfter is %v: want at least %v", ErrMisused, o.StaleAfter, leastStaleAfter)
	}
	for _, ns := range o.Namespaces {
		if err := validNamespace("Namespaces contains", ns); err != nil {
			return fmt.Errorf("%w; to watch all, leave Namespaces empty", err)
		}
	}
	o.Namespaces = slices.Compact(slices.Sorted(slices.Values(o.Namespaces)))
	if o.Registration == nil {
		return nil
	}
	registration := *o.Registration // the caller's value stays unchanged
	o.Registration = &registration
	return o.Registration.complete()
}

// validNamespace rejects a string that cannot name a namespace. An API server would return an empty list for it.
func validNamespace(where, name string) error {
	if name == "" {
		return fmt.Errorf("%w: %s an empty name", ErrMisused, where)
	}
	if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
		return fmt.Errorf("%w: %s %q, and no namespace has that name: %s", ErrMisused, where, name, strings.Join(wrong, ", "))
	}
	return nil
}

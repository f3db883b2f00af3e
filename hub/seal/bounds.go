package seal

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/lease"
)

// Bounds are the largest D, ε and stop time under which Leases may have been sent.
type Bounds struct{ Duration, Skew, Stop time.Duration }

// Max returns the larger value of each field.
func (b Bounds) Max(o Bounds) Bounds {
	return Bounds{max(b.Duration, o.Duration), max(b.Skew, o.Skew), max(b.Stop, o.Stop)}
}

// Total is how long a Lease counts after it was sent.
func (b Bounds) Total() time.Duration { return b.Duration + b.Skew + b.Stop }

// Of returns the bounds of Leases that were sent under one of these policies.
func (s Seal) Of(policies ...string) (b Bounds) {
	for _, name := range policies {
		b = b.Max(s.Policies[name])
	}
	return b
}

// Largest returns the bounds of Leases that were sent under any policy.
func (s Seal) Largest() Bounds { return s.Of(slices.Collect(maps.Keys(s.Policies))...) }

// covers reports whether the seal's bounds are at least o's, for each of o's policies.
func (s Seal) covers(o Seal) bool {
	for name, b := range o.Policies {
		if s.Of(name) != s.Of(name).Max(b) {
			return false
		}
	}
	return true
}

// Needed returns the seal's bounds for these policies, reduced to what they need.
func (s Seal) Needed(by map[string]Bounds) map[string]Bounds {
	needed := map[string]Bounds{}
	for name, b := range by {
		has := s.Of(name)
		if b = (Bounds{min(has.Duration, b.Duration), min(has.Skew, b.Skew), min(has.Stop, b.Stop)}); b != (Bounds{}) {
			needed[name] = b
		}
	}
	return needed
}

// raised returns the seal with o's bounds where they are larger.
func (s Seal) raised(o Seal) Seal {
	all := map[string]Bounds{}
	maps.Copy(all, s.Policies)
	for name, b := range o.Policies {
		all[name] = all[name].Max(b)
	}
	return Seal{Key: s.Key, Policies: all}
}

// stored is the form in which the Secret holds the bounds of a policy. A missing bound is an error: Leases may have
// been sent under any.
type stored struct {
	LeaseDuration *metav1.Duration `json:"leaseDuration"`
	MaxClockSkew  *metav1.Duration `json:"maxClockSkew"`
	StopTime      *metav1.Duration `json:"stopTime"`
}

// data returns the content of the Secret.
func (s Seal) data() map[string][]byte {
	all := map[string]stored{}
	for name, b := range s.Policies {
		all[name] = stored{&metav1.Duration{Duration: b.Duration}, &metav1.Duration{Duration: b.Skew},
			&metav1.Duration{Duration: b.Stop}}
	}
	policies, _ := json.Marshal(all) // cannot fail: strings only
	return map[string][]byte{dataKey: s.Key, dataPolicies: policies}
}

// parsePolicies parses the bounds of policies. Its error does not contain the text.
func parsePolicies(text []byte) (map[string]Bounds, error) {
	var all map[string]stored
	err := json.Unmarshal(text, &all)
	valid, policies := err == nil && all != nil, map[string]Bounds{}
	for name, b := range all {
		if valid = valid && isUpTo(b.LeaseDuration, lease.MaxDuration) && isUpTo(b.MaxClockSkew, lease.MaxSkew) &&
			isUpTo(b.StopTime, MaxStop); !valid {
			break
		}
		policies[name] = Bounds{b.LeaseDuration.Duration, b.MaxClockSkew.Duration, b.StopTime.Duration}
	}
	if !valid {
		return nil, fmt.Errorf("%w: %s must be a JSON object of policies and their bounds, such as 15s", ErrBroken,
			dataPolicies)
	}
	return policies, nil
}

func isUpTo(d *metav1.Duration, most time.Duration) bool {
	return d != nil && d.Duration >= 0 && d.Duration <= most
}

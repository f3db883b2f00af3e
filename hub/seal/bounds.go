package seal

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

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

// stored is the form in which the Secret holds the bounds of a policy.
type stored struct {
	LeaseDuration string `json:"leaseDuration"`
	MaxClockSkew  string `json:"maxClockSkew"`
	StopTime      string `json:"stopTime"`
}

// data returns the content of the Secret.
func (s Seal) data() map[string][]byte {
	all := map[string]stored{}
	for name, b := range s.Policies {
		all[name] = stored{b.Duration.String(), b.Skew.String(), b.Stop.String()}
	}
	policies, _ := json.Marshal(all) // cannot fail: strings only
	return map[string][]byte{dataKey: s.Key, dataPolicies: policies}
}

// parsePolicies parses the bounds of policies. A missing bound is an error: Leases may have been sent under any.
func parsePolicies(text []byte) (map[string]Bounds, error) {
	var all map[string]stored
	if err := json.Unmarshal(text, &all); err != nil || all == nil {
		return nil, fmt.Errorf("%w: %s must be a JSON object of policies and their bounds", ErrBroken, dataPolicies)
	}
	policies := map[string]Bounds{}
	for name, texts := range all {
		b, err := texts.bounds()
		if err != nil {
			return nil, fmt.Errorf("%w: %s must hold durations such as 15s", ErrBroken, dataPolicies)
		}
		policies[name] = b
	}
	return policies, nil
}

func (t stored) bounds() (b Bounds, err error) {
	for _, d := range []struct {
		text string
		to   *time.Duration
		most time.Duration
	}{
		{t.LeaseDuration, &b.Duration, lease.MaxDuration},
		{t.MaxClockSkew, &b.Skew, lease.MaxSkew},
		{t.StopTime, &b.Stop, MaxStop},
	} {
		if *d.to, err = time.ParseDuration(d.text); err != nil || *d.to < 0 || *d.to > d.most {
			return b, fmt.Errorf("%w: a bound is no duration up to %v", ErrBroken, d.most)
		}
	}
	return b, nil
}

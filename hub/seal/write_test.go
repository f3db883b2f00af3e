package seal_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/hub/seal"
)

// same compares instants.
func same(a, b lease.Content) bool {
	for _, c := range []*lease.Content{&a, &b} {
		c.AcquireTime, c.RenewTime = c.AcquireTime.UTC(), c.RenewTime.UTC()
	}
	return a == b
}

func TestWrittenLeaseIsSealed(t *testing.T) {
	tests := map[string]func(*lease.Content){
		"a follower's Lease":           func(c *lease.Content) { c.Holder = "west.default" },
		"the leader's Lease":           func(*lease.Content) {},
		"no leader":                    func(c *lease.Content) { c.Holder = "" },
		"the last epoch that fits":     func(c *lease.Content) { c.Epoch = math.MaxInt32 },
		"the longest that fits":        func(c *lease.Content) { c.Duration = math.MaxInt32 * time.Second },
		"a renewTime in another zone":  func(c *lease.Content) { c.RenewTime = c.RenewTime.In(time.FixedZone("", -7*3600)) },
		"a renewTime with nanoseconds": func(c *lease.Content) { c.RenewTime = c.RenewTime.Add(123456789 * time.Nanosecond) },
		"a start with nanoseconds":     func(c *lease.Content) { c.AcquireTime = c.AcquireTime.Add(-1) },
		"a start long ago":             func(c *lease.Content) { c.AcquireTime = time.Unix(0, 0) },
		"a start before 1970":          func(c *lease.Content) { c.AcquireTime = time.Unix(-1, 999_999_999) },
		"no start of the term":         func(c *lease.Content) { c.AcquireTime = time.Time{} },
		"names with odd characters":    func(c *lease.Content) { c.Hub = `"\u00e9<>&` },
		"the last microsecond there":   func(c *lease.Content) { c.RenewTime = noon.Add(time.Second - time.Microsecond) },
		"an allowance for clocks":      func(c *lease.Content) { c.Skew = 250 * time.Millisecond },
		"locks that are open":          func(c *lease.Content) { c.OpenLocks = lease.LockIDs([]string{"shop/elector"}) },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			c, l := sealedLease(), &coordinationv1.Lease{}
			change(&c)
			if err := seal.Write(sealKey, c, l); err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(l)
			if err != nil {
				t.Fatal(err)
			}
			stored := &coordinationv1.Lease{}
			if err := json.Unmarshal(text, stored); err != nil {
				t.Fatal(err)
			}
			if got, mac := wire.Read(stored); !sealKey.Sealed(got, mac) {
				t.Errorf("%+v is not sealed by %q", got, mac)
			}
		})
	}
}

// An edited Lease is sealed only if its content is the one that was sealed.
func FuzzSealedLease(f *testing.F) {
	original := sealedLease()
	l := &coordinationv1.Lease{}
	if err := seal.Write(sealKey, original, l); err != nil {
		f.Fatal(err)
	}
	text, err := json.Marshal(l)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	for _, changed := range []struct{ old, by string }{
		{`"holderIdentity":"east.default"`, `"holderIdentity":"west.default"`},
		{`"holderIdentity":"east.default",`, ``},
		{`"leaseTransitions":600000`, `"leaseTransitions":600001`},
		{`"leaseTransitions":600000`, `"leaseTransitions":null`},
		{`"leaseDurationSeconds":15`, `"leaseDurationSeconds":-2147483648`},
		{`12:00:00.000000Z`, `12:00:00.000001Z`},
		{`12:00:00.000000Z`, `13:00:00.000000+01:00`},
		{`"leasecast.dev/cluster":"east.default"`, `"leasecast.dev/cluster":"west.default"`},
		{`v1.`, `v2.`},
		{`"namespace":"team-a"`, `"namespace":"team-b"`},
	} {
		if !strings.Contains(string(text), changed.old) {
			f.Fatalf("%s does not contain %s", text, changed.old)
		}
		f.Add([]byte(strings.Replace(string(text), changed.old, changed.by, 1)))
	}
	f.Add([]byte(`{"spec":{}}`))
	f.Add([]byte(`{"metadata":{"annotations":{"leasecast.dev/seal":"v1."}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		l := &coordinationv1.Lease{}
		if json.Unmarshal(text, l) != nil {
			return // an API server would not have stored it
		}
		c, mac := wire.Read(l)
		if sealKey.Sealed(c, mac) && !same(c, original) {
			t.Errorf("sealed, but never written: %+v", c)
		}
		again := l.DeepCopy()
		if seal.Write(sealKey, c, again) != nil {
			return
		}
		if got, mac := wire.Read(again); !sealKey.Sealed(got, mac) {
			t.Errorf("not sealed after it was written: %+v", got)
		}
	})
}

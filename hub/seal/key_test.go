package seal_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/seal"
)

var (
	sealKey = seal.Key("0123456789abcdef0123456789abcdef")
	noon    = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
)

func sealedLease() lease.Content {
	return lease.Content{
		Term: lease.Term{
			Holder: "east.default", Epoch: 600_000, AcquireTime: noon.Add(-time.Hour), RenewTime: noon,
			Duration: 15 * time.Second,
		},
		Namespace: "team-a", Name: "leasecast", Cluster: "east.default", ClusterUID: "6f1c", Hub: "9b2d",
	}
}

func TestSealedContentThatALeaseCannotStoreIsRejected(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*lease.Content)
		stored bool
	}{
		"nothing changed":        {func(*lease.Content) {}, true},
		"an epoch of 32 bits":    {func(c *lease.Content) { c.Epoch = 1 << 31 }, false},
		"a part of a second":     {func(c *lease.Content) { c.Duration += time.Millisecond }, false},
		"a part of a ms of skew": {func(c *lease.Content) { c.Skew = time.Microsecond }, false},
	} {
		t.Run(name, func(t *testing.T) {
			c, l := sealedLease(), &coordinationv1.Lease{}
			test.change(&c)
			err := seal.Write(sealKey, c, l)
			if read, mac := wire.Read(l); (err == nil) != test.stored || sealKey.Sealed(read, mac) != test.stored {
				t.Errorf("Write returns %v and stores %+v", err, l)
			}
		})
	}
}

func TestSealNeedsItsKey(t *testing.T) {
	mac := sealKey.Seal(sealedLease())
	tests := map[string]struct {
		key    seal.Key
		mac    string
		sealed bool
	}{
		"the seal":                   {sealKey, mac, true},
		"another key":                {seal.Key("another"), mac, false},
		"no key, a seal without one": {nil, seal.Key(nil).Seal(sealedLease()), false},
		"no seal":                    {sealKey, "", false},
		"another prefix":             {sealKey, "v2." + strings.TrimPrefix(mac, "v1."), false},
		"cut":                        {sealKey, mac[:len(mac)-1], false},
		"with more":                  {sealKey, mac + "A", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.key.Sealed(sealedLease(), test.mac); got != test.sealed {
				t.Errorf("Sealed = %v, want %v", got, test.sealed)
			}
		})
	}
}

// The other replica, and the hub after an upgrade, must compute the same seal. It covers the whole content of a Lease,
// but not the time zone and the nanoseconds, which a Lease does not store.
func TestSealIsTheSameInEveryVersion(t *testing.T) {
	long := sealedLease()
	long.Namespace, long.Cluster, long.Holder = strings.Repeat("n", 63), strings.Repeat("c", 253), strings.Repeat("h", 253)
	long.RenewTime = noon.Add(999 * time.Nanosecond).In(time.FixedZone("", 3600))
	later := sealedLease()
	later.RenewTime = noon.Add(time.Microsecond)
	withLocks := sealedLease()
	withLocks.Skew, withLocks.OpenLocks = 1500*time.Millisecond, lease.LockIDs([]string{"shop/elector"})
	for want, c := range map[string]lease.Content{
		"v1.gL3KIKEXpyWZJyDv-AlwP67S2fM7nqtgJtmENYuJRSs": sealedLease(),
		"v1.7txJLNn626606wXr6_eGSNn2BhzPnGJIRurltT_6nDQ": long,
		"v1.I1x0nxphq-VM6KMedSDP9htat5WcLAw9HImWRoJuZCc": later,
		"v1.QTKH_jbQoi90ssBlNnX9tmVRx80HoW0j-1sytlhWv3c": withLocks,
		"v1.SmsakOnzSoyFaiCBrU9M6lvjnCtF2GWWZZnxwSRHdMo": {},
	} {
		if got := sealKey.Seal(c); got != want {
			t.Errorf("the seal of %+v is %s, want %s", c, got, want)
		}
	}
}

// The key is in no log, error or report, also not in that of a seal.
func TestKeyIsNeverPrinted(t *testing.T) {
	loaded := seal.Seal{Key: sealKey}
	for _, value := range []any{sealKey, struct{ Key seal.Key }{sealKey}, []seal.Key{sealKey}, loaded, &loaded} {
		text := musttest.Get(json.Marshal(value))(t)
		texts := []string{string(text)}
		for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X"} {
			texts = append(texts, fmt.Sprintf(format, value))
		}
		for _, text := range texts {
			for _, part := range []string{string(sealKey), fmt.Sprintf("%x", string(sealKey)), "0x30, 0x31", "48 49"} {
				if strings.Contains(strings.ToLower(text), part) {
					t.Errorf("%T shows the key: %s", value, text)
				}
			}
		}
	}
}

// A pin is proved by the hub's key for this fleet, Cluster and UID only.
func TestPin(t *testing.T) {
	proof := seal.Pin(sealKey, "fleet", "east", "uid")
	for name, test := range map[string]struct {
		key                        seal.Key
		fleet, cluster, uid, proof string
		want                       bool
	}{
		"the hub's":          {sealKey, "fleet", "east", "uid", proof, true},
		"of another Cluster": {sealKey, "fleet", "west", "uid", proof, false},
		"of another fleet":   {sealKey, "other", "east", "uid", proof, false},
		"of another UID":     {sealKey, "fleet", "east", "another", proof, false},
		"under another key":  {seal.Key("another"), "fleet", "east", "uid", proof, false},
		"without a key":      {nil, "fleet", "east", "uid", seal.Pin(nil, "fleet", "east", "uid"), false},
		"without a proof":    {sealKey, "fleet", "east", "uid", "", false},
		"of names, shifted":  {sealKey, "fleete", "ast", "uid", proof, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := seal.IsPin(test.key, test.fleet, test.cluster, test.uid, test.proof); got != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
	full := &corev1.Secret{Data: map[string][]byte{"key": sealKey}}
	short := &corev1.Secret{Data: map[string][]byte{"key": sealKey[1:]}}
	if !bytes.Equal(seal.KeyOf(full), sealKey) || seal.KeyOf(short) != nil {
		t.Error("KeyOf returns a key of the wrong size, or not the key")
	}
}

package seal_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/seal"
)

var (
	sealKey = seal.Key("0123456789abcdef0123456789abcdef")
	noon    = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
)

func sealedLease() lease.Content {
	return lease.Content{
		Term: lease.Term{
			Holder: "east.default", Epoch: 600_000, AcquireTime: noon.Add(-time.Hour), RenewTime: noon, Duration: 15 * time.Second,
		},
		Namespace: "team-a", Name: "leasecast", Cluster: "east.default", ClusterUID: "6f1c", Hub: "9b2d",
	}
}

func TestSealCoversAllThatALeaseSays(t *testing.T) {
	tests := map[string]struct {
		change func(*lease.Content)
		sealed bool
	}{
		"nothing changed":                {func(*lease.Content) {}, true},
		"holder":                         {func(c *lease.Content) { c.Holder = "west.default" }, false},
		"no holder":                      {func(c *lease.Content) { c.Holder = "" }, false},
		"epoch":                          {func(c *lease.Content) { c.Epoch++ }, false},
		"start of the term":              {func(c *lease.Content) { c.AcquireTime = c.AcquireTime.Add(time.Microsecond) }, false},
		"no start of the term":           {func(c *lease.Content) { c.AcquireTime = time.Time{} }, false},
		"renewTime":                      {func(c *lease.Content) { c.RenewTime = c.RenewTime.Add(time.Microsecond) }, false},
		"no renewTime":                   {func(c *lease.Content) { c.RenewTime = time.Time{} }, false},
		"duration":                       {func(c *lease.Content) { c.Duration += time.Second }, false},
		"namespace":                      {func(c *lease.Content) { c.Namespace = "team-b" }, false},
		"name":                           {func(c *lease.Content) { c.Name = "leasecast2" }, false},
		"cluster":                        {func(c *lease.Content) { c.Cluster = "west.default" }, false},
		"UID of the cluster":             {func(c *lease.Content) { c.ClusterUID = "6f1d" }, false},
		"hub":                            {func(c *lease.Content) { c.Hub = "9b2e" }, false},
		"namespace and name, shifted":    {func(c *lease.Content) { c.Namespace, c.Name = "team-al", "easecast" }, false},
		"hub and holder, shifted":        {func(c *lease.Content) { c.Hub, c.Holder = "9b2de", "ast.default" }, false},
		"cluster and holder, exchanged":  {func(c *lease.Content) { c.Cluster, c.Hub = c.Hub, c.Cluster }, false},
		"start and renewTime, exchanged": {func(c *lease.Content) { c.AcquireTime, c.RenewTime = c.RenewTime, c.AcquireTime }, false},
		"the same in another time zone":  {func(c *lease.Content) { c.RenewTime = c.RenewTime.In(time.FixedZone("", 3600)) }, true},
		"less than a Lease can store":    {func(c *lease.Content) { c.RenewTime = c.RenewTime.Add(999 * time.Nanosecond) }, true},
		"allowance for clocks":           {func(c *lease.Content) { c.Skew = time.Second }, false},
	}
	seal := sealKey.Seal(sealedLease())
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := sealedLease()
			test.change(&c)
			if got := sealKey.Sealed(c, seal); got != test.sealed {
				t.Errorf("Sealed = %v, want %v", got, test.sealed)
			}
		})
	}
}

func TestSealNeedsItsKeyAndItsWholeText(t *testing.T) {
	mac := sealKey.Seal(sealedLease())
	tests := map[string]struct {
		key    seal.Key
		mac    string
		sealed bool
	}{
		"the seal":                      {sealKey, mac, true},
		"another key":                   {seal.Key("another"), mac, false},
		"a longer key":                  {append(seal.Key{}, append(sealKey, '!')...), mac, false},
		"no key":                        {nil, mac, false},
		"no key for a seal without one": {nil, seal.Key(nil).Seal(sealedLease()), false},
		"an empty key likewise":         {seal.Key{}, seal.Key{}.Seal(sealedLease()), false},
		"no seal":                       {sealKey, "", false},
		"only the prefix":               {sealKey, "v1.", false},
		"without the prefix":            {sealKey, strings.TrimPrefix(mac, "v1."), false},
		"another prefix":                {sealKey, "v2." + strings.TrimPrefix(mac, "v1."), false},
		"cut":                           {sealKey, mac[:len(mac)-1], false},
		"with more":                     {sealKey, mac + "A", false},
		"in upper case":                 {sealKey, "v1." + strings.ToUpper(strings.TrimPrefix(mac, "v1.")), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.key.Sealed(sealedLease(), test.mac); got != test.sealed {
				t.Errorf("Sealed = %v, want %v", got, test.sealed)
			}
		})
	}
}

// A hub of any later version must believe what this one sealed.
func TestSealStaysAsItIs(t *testing.T) {
	const want = "v1.gL3KIKEXpyWZJyDv-AlwP67S2fM7nqtgJtmENYuJRSs"
	if got := sealKey.Seal(sealedLease()); got != want {
		t.Errorf("Seal = %q, want %q", got, want)
	}
}

func TestSealCoversTheAllowanceForClocks(t *testing.T) {
	c := sealedLease()
	c.Skew = time.Second
	seal := sealKey.Seal(c)
	for name, skew := range map[string]time.Duration{"more": 2 * time.Second, "less": time.Millisecond, "none": 0} {
		edited := c
		edited.Skew = skew
		if sealKey.Sealed(edited, seal) {
			t.Errorf("an edit to %s is sealed", name)
		}
	}
	if !sealKey.Sealed(c, seal) {
		t.Error("the content itself is not sealed")
	}
}

func TestKeyIsNeverPrinted(t *testing.T) {
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X"} {
		for _, value := range []any{sealKey, struct{ Key seal.Key }{sealKey}, []seal.Key{sealKey}} {
			text := fmt.Sprintf(format, value)
			if strings.Contains(text, string(sealKey)) || strings.Contains(strings.ToLower(text), fmt.Sprintf("%x", string(sealKey))) ||
				strings.Contains(text, "0x30, 0x31") || strings.Contains(text, "48 49") {
				t.Errorf("%s of %T prints the key: %s", format, value, text)
			}
		}
	}
}

func FuzzSeal(f *testing.F) {
	f.Add([]byte(sealKey), "team-a", "leasecast", "east.default", "6f1c", "9b2d", "east.default", int64(600_000), int64(1), int64(2), int64(15), uint8(0))
	f.Add([]byte{1}, "", "", "", "", "", "", int64(0), int64(0), int64(0), int64(0), uint8(9))
	f.Fuzz(func(t *testing.T, key []byte, namespace, name, cluster, uid, hub, holder string, epoch, acquired, renewed, seconds int64, field uint8) {
		c := lease.Content{
			Term: lease.Term{
				Holder: holder, Epoch: epoch, AcquireTime: time.UnixMicro(acquired), RenewTime: time.UnixMicro(renewed),
				Duration: time.Duration(int32(seconds)) * time.Second,
			},
			Namespace: namespace, Name: name, Cluster: cluster, ClusterUID: uid, Hub: hub,
		}
		k := seal.Key(key)
		mac := k.Seal(c)
		if got := k.Sealed(c, mac); got != (len(key) > 0) {
			t.Fatalf("Sealed = %v by a key of %d bytes", got, len(key))
		}
		changed := c
		switch field % 10 {
		case 0:
			changed.Namespace += "x"
		case 1:
			changed.Name += "x"
		case 2:
			changed.Cluster += "x"
		case 3:
			changed.ClusterUID += "x"
		case 4:
			changed.Hub += "x"
		case 5:
			changed.Holder += "x"
		case 6:
			changed.Epoch++
		case 7:
			changed.AcquireTime = time.UnixMicro(acquired + 1)
		case 8:
			changed.RenewTime = time.UnixMicro(renewed + 1)
		case 9:
			changed.Duration += time.Second
		}
		if k.Sealed(changed, mac) {
			t.Fatalf("%+v is sealed by the seal of %+v", changed, c)
		}
	})
}

func TestTheKeyIsNotWrittenAsJSON(t *testing.T) {
	text, err := json.Marshal(struct{ Key seal.Key }{sealKey})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"Key":"[seal key]"}`; string(text) != want {
		t.Errorf("got %s, want %s", text, want)
	}
}

// The other replica, and the hub after an upgrade, must come to the same seal.
func TestASealIsTheSameInEveryVersion(t *testing.T) {
	long := sealedLease()
	long.Namespace, long.Cluster, long.Holder = strings.Repeat("n", 63), strings.Repeat("c", 253), strings.Repeat("h", 253)
	for want, c := range map[string]lease.Content{
		"v1.gL3KIKEXpyWZJyDv-AlwP67S2fM7nqtgJtmENYuJRSs": sealedLease(),
		"v1.7txJLNn626606wXr6_eGSNn2BhzPnGJIRurltT_6nDQ": long,
		"v1.SmsakOnzSoyFaiCBrU9M6lvjnCtF2GWWZZnxwSRHdMo": {},
	} {
		if got := sealKey.Seal(c); got != want {
			t.Errorf("the seal of %+v is %s, want %s", c, got, want)
		}
	}
}

package seal

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
)

// sealPrefix names the algorithm of a seal, so that a later one can exist beside it.
const sealPrefix = "v1."

// Key is the secret that Leases are sealed with.
type Key []byte

// String keeps the key out of logs, errors and reports.
func (Key) String() string { return "[seal key]" }

// GoString keeps the key out of %#v.
func (Key) GoString() string { return "[seal key]" }

// MarshalJSON keeps the key out of structured logs and reports.
func (Key) MarshalJSON() ([]byte, error) { return []byte(`"[seal key]"`), nil }

// Seal returns a MAC over the whole content of the Lease. A hub trusts sealed Leases only. An unsealed Lease in the
// place of a sealed one is an edit.
func (k Key) Seal(c lease.Content) string {
	text := make([]byte, 0, 256)
	for _, s := range [...]string{c.Namespace, c.Name, c.Cluster, c.ClusterUID, c.Hub, c.Holder} {
		text = binary.BigEndian.AppendUint64(text, uint64(len(s))) // lengths, so that no two contents give the same text
		text = append(text, s...)
	}
	for _, n := range [...]int64{
		c.Epoch, c.AcquireTime.UnixMicro(), c.RenewTime.UnixMicro(), int64(c.Duration / time.Second),
	} {
		text = binary.BigEndian.AppendUint64(text, uint64(n))
	}
	if c.Skew != 0 { // Leases of older hubs have no ε, and their seals stay valid
		text = binary.BigEndian.AppendUint64(text, uint64(c.Skew/time.Millisecond))
	}
	if c.OpenLocks != "" { // a MAC over a longer text never equals one over a shorter text
		text = binary.BigEndian.AppendUint64(text, uint64(len(c.OpenLocks)))
		text = append(text, c.OpenLocks...)
	}
	mac := hmac.New(sha256.New, k)
	_, _ = mac.Write(text)
	sum := mac.Sum(text[:0])
	return string(base64.RawURLEncoding.AppendEncode([]byte(sealPrefix), sum))
}

// Sealed reports whether seal is the seal of this content under the key. The empty key seals nothing.
func (k Key) Sealed(c lease.Content, seal string) bool {
	return len(k) > 0 && strings.HasPrefix(seal, sealPrefix) && hmac.Equal([]byte(seal), []byte(k.Seal(c)))
}

// Write writes the content, sealed with the key, into l, as wire.Write does.
func Write(k Key, c lease.Content, l *coordinationv1.Lease) error { return wire.Write(c, k.Seal(c), l) }

package lease

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"
)

// sealPrefix names the way in which a seal is computed, so that a later one can exist beside it.
const sealPrefix = "v1."

// Key is the secret that Leases are sealed with.
type Key []byte

// String keeps the key out of logs, errors and reports.
func (Key) String() string { return "[seal key]" }

// GoString keeps the key out of %#v.
func (Key) GoString() string { return "[seal key]" }

// MarshalJSON keeps the key out of structured logs and reports.
func (Key) MarshalJSON() ([]byte, error) { return []byte(`"[seal key]"`), nil }

// Seal returns a MAC over everything that the Lease says. A hub believes sealed Leases only. Anything else in
// the place of one is an edit by somebody else.
func Seal(key Key, c Content) string {
	text := make([]byte, 0, 256)
	for _, s := range [...]string{c.Namespace, c.Name, c.Cluster, c.ClusterUID, c.Hub, c.Holder} {
		text = binary.BigEndian.AppendUint64(text, uint64(len(s))) // lengths, so that no two contents give the same text
		text = append(text, s...)
	}
	for _, n := range [...]int64{c.Epoch, c.AcquireTime.UnixMicro(), c.RenewTime.UnixMicro(), int64(c.Duration / time.Second)} {
		text = binary.BigEndian.AppendUint64(text, uint64(n))
	}
	if c.Skew != 0 { // Leases of older hubs say nothing of it, and their seals stay good
		text = binary.BigEndian.AppendUint64(text, uint64(c.Skew/time.Millisecond))
	}
	if c.OpenLocks != "" { // a MAC over a longer text is never that over a shorter one
		text = binary.BigEndian.AppendUint64(text, uint64(len(c.OpenLocks)))
		text = append(text, c.OpenLocks...)
	}
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write(text)
	sum := mac.Sum(text[:0])
	return string(base64.RawURLEncoding.AppendEncode([]byte(sealPrefix), sum))
}

// Sealed reports whether seal is the seal of this content under the key. The empty key seals nothing.
func Sealed(key Key, c Content, seal string) bool {
	return len(key) > 0 && strings.HasPrefix(seal, sealPrefix) && hmac.Equal([]byte(seal), []byte(Seal(key, c)))
}

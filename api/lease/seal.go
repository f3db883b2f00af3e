package lease

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"
)

// sealPrefix names the way in which a seal is computed, so that a later one can
// stand beside it.
const sealPrefix = "v1."

// Key is the secret that copies are sealed with.
type Key []byte

// String keeps the key out of logs, errors and reports.
func (Key) String() string { return "[seal key]" }

// GoString keeps the key out of %#v.
func (Key) GoString() string { return "[seal key]" }

// MarshalJSON keeps the key out of structured logs and reports.
func (Key) MarshalJSON() ([]byte, error) { return []byte(`"[seal key]"`), nil }

// Seal returns a MAC over everything that the copy says. Only a sealed copy is
// believed by a hub; anything else in its place is a foreign edit.
func Seal(key Key, c Copy) string {
	text := make([]byte, 0, 256)
	for _, s := range [...]string{c.Namespace, c.Name, c.Cluster, c.ClusterUID, c.Hub, c.Holder} {
		text = binary.BigEndian.AppendUint64(text, uint64(len(s))) // lengths, so that no two copies read the same
		text = append(text, s...)
	}
	for _, n := range [...]int64{c.Epoch, c.Acquired.UnixMicro(), c.Renewed.UnixMicro(), int64(c.Duration / time.Second)} {
		text = binary.BigEndian.AppendUint64(text, uint64(n))
	}
	if c.Skew != 0 { // copies of older hubs say nothing of it, and their seals stay good
		text = binary.BigEndian.AppendUint64(text, uint64(c.Skew/time.Millisecond))
	}
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write(text)
	sum := mac.Sum(text[:0])
	return string(base64.RawURLEncoding.AppendEncode([]byte(sealPrefix), sum))
}

// Sealed reports whether seal is the seal of the copy under the key. The empty
// key seals nothing.
func Sealed(key Key, c Copy, seal string) bool {
	return len(key) > 0 && strings.HasPrefix(seal, sealPrefix) && hmac.Equal([]byte(seal), []byte(Seal(key, c)))
}

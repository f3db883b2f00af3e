package lease

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash"
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
	mac := hmac.New(sha256.New, key)
	for _, s := range []string{c.Namespace, c.Name, c.Cluster, c.ClusterUID, c.Hub, c.Holder} {
		writeInt(mac, int64(len(s))) // lengths, so that no two copies read the same
		_, _ = mac.Write([]byte(s))
	}
	writeInt(mac, c.Epoch)
	writeInt(mac, c.Acquired.UnixMicro())
	writeInt(mac, c.Renewed.UnixMicro())
	writeInt(mac, int64(c.Duration/time.Second))
	return sealPrefix + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// Sealed reports whether seal is the seal of the copy under the key. The empty
// key seals nothing.
func Sealed(key Key, c Copy, seal string) bool {
	return len(key) > 0 && strings.HasPrefix(seal, sealPrefix) && hmac.Equal([]byte(seal), []byte(Seal(key, c)))
}

func writeInt(mac hash.Hash, n int64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n))
	_, _ = mac.Write(b[:])
}

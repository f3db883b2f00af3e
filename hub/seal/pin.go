package seal

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	corev1 "k8s.io/api/core/v1"
)

// pinned is the prefix of the text in proofs of pins, so that no proof seals a Lease.
const pinned = "leasecast.dev/cluster-uid"

// Pin returns the proof that the hub itself has pinned a UID on a Cluster. Whoever may annotate a Cluster cannot
// compute one, and another Cluster's proof is not valid for it.
func Pin(key Key, fleet, cluster, uid string) string {
	mac := hmac.New(sha256.New, key)
	for _, s := range [...]string{pinned, fleet, cluster, uid} {
		_, _ = mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s)))) // length prefixes keep pins distinct
		_, _ = mac.Write([]byte(s))
	}
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// IsPin reports whether proof is the proof of a pin. The empty key proves nothing.
func IsPin(key Key, fleet, cluster, uid, proof string) bool {
	return len(key) > 0 && hmac.Equal([]byte(proof), []byte(Pin(key, fleet, cluster, uid)))
}

// KeyOf returns the key in a Secret, or nil if it holds no key of the right size.
func KeyOf(secret *corev1.Secret) Key {
	if key := secret.Data[dataKey]; len(key) == keySize {
		return key
	}
	return nil
}

package seal

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	corev1 "k8s.io/api/core/v1"
)

// pinned begins what proofs of pins are made from, so that none of them seals a Lease.
const pinned = "leasecast.dev/cluster-uid"

// Pin returns the proof that the hub itself has pinned a UID on a Cluster. Whoever may annotate a Cluster cannot make one,
// and that of another Cluster proves nothing.
func Pin(key Key, fleet, cluster, uid string) string {
	mac := hmac.New(sha256.New, key)
	for _, s := range [...]string{pinned, fleet, cluster, uid} {
		_, _ = mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s)))) // lengths, so that no two pins give the same text
		_, _ = mac.Write([]byte(s))
	}
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// IsPin reports whether proof is the proof of a pin. The empty key proves nothing.
func IsPin(key Key, fleet, cluster, uid, proof string) bool {
	return len(key) > 0 && hmac.Equal([]byte(proof), []byte(Pin(key, fleet, cluster, uid)))
}

// KeyOf is the key in a Secret; empty if there is none that could be one.
func KeyOf(secret *corev1.Secret) Key {
	if key := secret.Data[dataKey]; len(key) == keySize {
		return key
	}
	return nil
}

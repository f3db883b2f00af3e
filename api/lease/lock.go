package lease

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// LockID identifies a fenced lock, named namespace/name, in [Content.OpenLocks]: 12 hexadecimal digits.
func LockID(lock string) string {
	sum := sha256.Sum256([]byte(lock))
	return hex.EncodeToString(sum[:6])
}

// LockIDs lists fenced locks in the form of [Content.OpenLocks]: their IDs in ascending order, with commas between.
func LockIDs(locks []string) string {
	ids := make([]string, 0, len(locks))
	for _, lock := range locks {
		ids = append(ids, LockID(lock))
	}
	slices.Sort(ids)
	return strings.Join(ids, ",")
}

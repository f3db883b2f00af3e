// Package ledger keeps the record of each namespace, and what this tenure remembers of it, as one value.
//
// A decision takes an Entry once, changes it, and writes its record once, by compare-and-swap:
//
//	Take ──▶ (a decision) ──▶ Write ──▶ WriteStatus or Delete ──▶ Return
//
// A tenure reads a record live once. After that it tracks its own writes, and a watch shows the writes of others
// (Show). A decision on an outdated record fails when it is written. API servers refuse edits
// of a record's spec by others (config/rbac). A record that was deleted, or created again from a backup, is restored.
package ledger

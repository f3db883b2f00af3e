// Package explain makes conditions, statuses, events and messages of what was decided and of what is known, as pure
// functions. Package reason has the words for causes. A message says what is wrong and what to do.
package explain

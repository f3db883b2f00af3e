// Package decide makes one decision on a namespace, as pure functions of values.
//
// A Snapshot has the record with what the tenure remembers (ledger.Entry), the policies, and what members show. Claim
// finds the policy that owns the namespace; members are judged by that policy. Complete adds the state that the
// election decides on. Decide calls the election and returns a Plan, and Assignments returns what each Lease has to be
// once the plan's record is persisted. Both change nothing. What is carried out is noted in the Entry alone.
package decide

// Package controller is the only place that sees all: it gathers what the records,
// the policies, the members and the publishers know, asks election.Next, persists the
// answer by compare-and-swap, and only then tells the publishers what each copy has to
// be.
//
//	gather ──▶ election.Next ──▶ persist ──▶ assign ──▶ status
//
// One request is one namespace of one fleet. In a steady state there are none: renewals
// are the publishers' work and touch no record. A request comes from an event: of a
// record, a policy, a member, a namespace in a member, or a publisher whose facts
// changed; or from the instant that the last decision asked for.
//
// Two tenures never decide or stamp at once. Where the election's Lease does not tell that the
// earlier one is over, because somebody deleted or edited it, nothing is decided until it
// must be (tenure.Tenure.Overlap): what one of them stamps is in no bound that the other counts.
package controller

// Package election is the heart of the hub: the rules by which a namespace gets,
// keeps and changes its leader, as pure functions. Equal inputs give equal
// decisions; nothing here reads a clock, a cluster or a record.
//
// # One decision
//
// The controller gathers a State (the record as persisted, what this tenure has
// promised, what the tenure inherited) and the candidates, and asks Next. The
// Decision says what the record must become, to be persisted before anything is
// written into a member, and when to ask again. Assign then says what the copy in
// each member has to be, as a function of the persisted record alone.
//
//	Vacant ──grant──▶ Leading ──drain──▶ Draining ──grant──▶ Leading
//	   ▲                 ▲                  │  │
//	   │                 └──────resume──────┘  │
//	   └───────── nobody is eligible ──────────┘        any ──▶ Retired ──▶ gone
//
// Planned and unplanned changes are one path. A term ends by draining: the record
// says Draining, the source of stamps is closed, and only then the bound is
// counted: the latest deadline that anybody can have been promised, plus ε. The
// next grant comes when the bound has passed on the wall clock and on the clock
// that never steps.
//
// Where all readers register, a term can end earlier. Once the drain is recorded and the
// successor has shown that it can be written, the record says that the term is revoked, in
// an epoch of its own. From then on it never resumes; its live copy gives way to one that
// names nobody, and the next grant comes when all readers have released the term, or
// when the bound has passed.
//
// # Where each rule of the protocol lives
//
//   - bound.go: rules 4, 5 and 6, when an old promise has certainly ended;
//   - rank.go: rule 13, who is best among those that may lead;
//   - replace.go: rules 9, 10, 11 and 12, when a leader must go, and when it must not;
//   - revoke.go: rules 4 and 5, when a term ends by the word of its readers;
//   - grant.go: rule 7, the new term and its epoch;
//   - moved.go: rules 6, 8 and 11, what came from another hub;
//   - raise.go: rule 6, what sealed copies tell a tenure whose record is old or lost;
//   - next.go: the phases;
//   - assign.go: rules 2 and 3, what each member's copy has to be.
package election

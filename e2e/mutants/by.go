package main

// The simulation runs the hub's and the reader's real code, until the first seed that fails.
var simulation = tests{pkg: "./hub/controller", run: "^TestSimulation$"}

// The stories are single traces in the worlds of the simulation, for what needs a coincidence.
var stories = tests{pkg: "./hub/controller", run: "^TestStories$"}

// The tests beside the code, but those that start real API servers and those that run a simulation.
var (
	ofReader   = tests{pkg: "./api/lease", run: "^Test"}
	ofMember   = tests{pkg: "./member", run: "^Test"}
	ofElection = tests{pkg: "./hub/election", run: "^Test"}
	ofTenure   = tests{pkg: "./hub/tenure", run: "^Test"}
	ofSeal     = tests{pkg: "./hub/seal", run: "^Test"}
	ofPublish  = tests{
		pkg: "./hub/publish", run: "^Test", skip: "^Test(OnARealServer|NothingIsLostByMerging|.*Exploration.*)$",
	}
	ofController = tests{pkg: "./hub/controller", run: "^Test", skip: "^Test(Simulation|Stories|NarrowWorlds$)"}
	ofLedger     = tests{pkg: "./hub/ledger", run: "^Test"}
	ofDecide     = tests{pkg: "./hub/decide", run: "^Test"}
	ofIdentity   = tests{pkg: "./hub/fleet", run: "^Test(IdentityOf|Owners)$"}
)

// The tests of admission policies need a real API server.
var (
	ofFences     = tests{pkg: "./hub/guard", run: "^Test(NewDesired|Keeper_)"}
	ofGuard      = tests{pkg: "./hub/guard", run: "^TestGuard_OnlyTheHubWritesLeases$"}
	ofWriteFence = tests{pkg: "./hub/guard", run: "^TestWriteFence_RejectsWritesOutsideTheTerm$"}
	ofLockFence  = tests{pkg: "./hub/guard", run: "^TestLockFence_RejectsOutsideTheTerm$"}
	ofJobFence   = tests{pkg: "./hub/guard", run: "^TestScheduleFence_RejectsJobsOutsideTheTerm$"}
)

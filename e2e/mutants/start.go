package main

const (
	awaitGo = "hub/await.go"
	lostGo  = "hub/lost.go"
	againGo = "cmd/leasecast-hub/again.go"
)

// What must notice the mutants of the begin of a hub process.
var (
	waiting        = tests{"./hub", "^(TestTheHubWaits.*|TestTheEndOfTheContext.*|TestWhileItWaits.*)$"}
	losing         = tests{"./hub", "^TestALostElectionIsTold$"}
	beginningAgain = tests{"./cmd/leasecast-hub", "^(TestTheProgramBeginsAgainInPlace|TestAProgramThatRanForAMoment.*)$"}
)

// starting are the mutants of how a hub waits for its API server, and begins again when it has lost its election.
var starting = []mutant{
	{"start: an API server that refuses ends the hub", waiting, []edit{{awaitGo, "		return err == nil, nil\n", "		return err == nil, err\n"}}},
	{"start: a question waits for ever", waiting, []edit{{awaitGo, "context.WithTimeout(ctx, askTimeout)", "context.WithCancel(ctx)"}}},
	{"start: a hub that waits is ready", waiting, []edit{{awaitGo, "http.StatusServiceUnavailable", "http.StatusOK"}}},
	{"start: a hub that waits keeps the manager's address", waiting, []edit{{awaitGo, "		_ = server.Close() // the manager answers from now on\n		<-done\n", ""}}},
	{"start: each question without an answer is a line", waiting, []edit{{awaitGo, "clock.Since(said) >= sayEvery", "clock.Since(said) >= 0"}}},
	{"start: any error is a lost election", losing, []edit{{lostGo, "strings.Contains(err.Error(), lostElection)", "strings.Contains(err.Error(), \"\")"}}},
	{"start: no election is ever lost", losing, []edit{{lostGo, "\"leader election lost\"", "\"election lost by us\""}}},
	{"start: a hub spins", beginningAgain, []edit{{againGo, "if ran < leastRun {", "if ran < 0 {"}}},
	{"start: the arguments are lost", beginningAgain, []edit{{againGo, "os.Args, os.Environ()", "os.Args[:1], os.Environ()"}}},
}

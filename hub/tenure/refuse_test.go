package tenure_test

import "testing"

// A process whose Leases would be useless neither wins nor renews the election, but releases it.
func TestRefuseIf(t *testing.T) {
	playEach(t, map[string]string{
		"no Lease: not won while it refuses": "refuse; fails wins 0; not-holds 0; accept; wins 1; holds 1",
		"a released Lease: not won while it refuses": "found released -10; refuse; fails wins 0; untouched; not-holds 0; " +
			"accept; wins 1; holds 1",
		"held: not renewed, but released": "wins 0; wins 1; refuse; fails wins 2; until 7 7; read; release 2; never 2",
	})
}

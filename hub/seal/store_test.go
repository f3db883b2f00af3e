package seal_test

import (
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/leasecast/leasecast/hub/seal"
)

// Find creates no Secret, because a move may bring it.
func TestFind(t *testing.T) {
	play(t, `
no Secret: no key, until there is one
	remove; find; no-key; wrote 0; replica 2; serve own; replica 1; find; key
a Secret: read once
	find; key; bounds 15s 1s 0s; fails all no; find; wrote 0
a known seal: reads nothing
	serve own; fails all no; find; largest 15s 1s 0s
`)
}

// A standby reads what the other replica has raised. Nothing lowers what it has.
func TestRefresh(t *testing.T) {
	play(t, `
raised: counts
	find; edit bounds=60s,2s,17s; refresh; largest 60s 2s 17s
lowered: does not count
	find; edit bounds=5s,500ms,0s; refresh; largest 15s 1s 0s
of another key: does not count
	find; edit bounds=60s,2s,17s anotherKey; refresh; largest 15s 1s 0s
broken: does not count
	find; edit bounds=many,2s,17s; refresh; largest 15s 1s 0s
not readable: an error
	find; fails all no; refresh -> no
`)
}

func TestRaise(t *testing.T) {
	play(t, `
each bound alone: persisted before it returns
	raise shops 60s 0s 0s; bounds 60s 1s 0s; raise shops 0s 1500ms 0s; bounds 60s 1500ms 0s; raise shops 0s 0s 17s;
	bounds 60s 1500ms 17s
no Secret: creates it
	remove; raise shops 60s 2s 17s; bounds 60s 2s 17s
to what another replica has raised: writes nothing
	find; replica 2; find; replica 3; raise shops 60s 2s 17s; replica 1; raise shops 60s 0s 0s; replica 2;
	raise shops 60s 2s 17s; wrote 1; replica 1; bounds 60s 2s 17s
to what is known: sends no request
	find; fails all no; raise shops 15s 1s 0s; raise shops 3s 250ms 0s; wrote 0
on a conflict: fails, and succeeds the next time
	once update raise shops 60s 2s 17s; raise shops 60s 0s 0s -> conflict; raise shops 60s 0s 0s; bounds 60s 2s 17s
the update fails: does not count
	fails update no; raise shops 60s 2s 17s -> no; works; bounds 15s 1s 0s; raise shops 60s 2s 17s; bounds 60s 2s 17s
another replica creates the Secret after it was not found: keeps its key
	remove; once get once get serve own; raise shops 60s 2s 17s; bounds 60s 2s 17s; mark own
the Secret was deleted: creates it with the key in use and the larger bounds
	find; keep; remove; raise shops 3s 2s 0s; kept; remove; raise shops 60s 250ms 0s; kept; bounds 60s 2s 0s; moves
the Secret has another key: writes nothing, and asks to restart the hub
	find; edit anotherKey; raise shops 60s 2s 17s -> broken; message restart the hub; wrote 0
other labels and data: left alone
	edit team=platform; raise shops 60s 2s 17s; team platform
`)
	t.Run("by many callers at once: the largest counts", func(t *testing.T) {
		s := newSealTest(t)
		store := seal.NewStore(s.admin, s.admin)
		var wg sync.WaitGroup
		for i := range 30 {
			wg.Go(func() {
				b := seal.Bounds{Duration: time.Duration(i+31) * second}
				for store.Raise(t.Context(), fleet, "shops", b) != nil && t.Context().Err() == nil { // a conflict
				}
				if got, _ := store.Find(t.Context(), fleet); got.Largest() != got.Largest().Max(b) {
					t.Errorf("%v was raised, %v counts", b, got.Largest())
				}
			})
		}
		wg.Wait()
		s.play("bounds 60s 1s 0s")
	})
}

var both = map[string]seal.Bounds{"fast": {Duration: 3 * second, Skew: second / 4},
	"slow": {Duration: 15 * second, Skew: second, Stop: 155 * second}}

// The bounds of one policy do not delay the namespaces of another one.
func TestEachPolicyHasItsOwnBounds(t *testing.T) {
	const begin = "\tedit policies={}; raise fast 3s 250ms 0s; raise slow 15s 1s 155s"
	play(t, `
a policy is dropped: has none
`+begin+`; lower fast=3s,250ms,0s; of fast 3s 250ms 0s; of slow 0s 0s 0s
lowered, but raised since it was read: sends no request, and has the larger ones
`+begin+`; raise fast 15s 1s 155s; fails all no; lower fast=3s,250ms,0s; works; of fast 15s 1s 155s; of slow 15s 1s 155s
lowered, but another replica has raised: has the larger ones
`+begin+`; replica 2; raise fast 15s 1s 155s; replica 1; lower fast=3s,250ms,0s; replica 3; of fast 15s 1s 155s;
	of slow 15s 1s 155s
lowered again after a write that failed: has the smaller ones
`+begin+`; once update no; lower fast=3s,250ms,0s -> no; lower fast=3s,250ms,0s; of fast 3s 250ms 0s; of slow 0s 0s 0s
raised before it is lowered: has the larger ones
`+begin+`; once get same raise slow 15s 1s 155s; lower fast=3s,250ms,0s; of slow 15s 1s 155s
read and raised while a write may arrive that has lowered it: that write fails, and what is read counts again
`+begin+`; once update no; lower fast=3s,250ms,0s -> no; serve own; serve own; count; raise slow 15s 1s 155s; wrote 1;
	raise slow 15s 1s 155s; wrote 1; of slow 15s 1s 155s; replica 2; raise fast 60s 2s 0s; replica 1; refresh;
	of fast 60s 2s 0s
lowered again after a write that may arrive, while a raise fails: the next raise is a write
`+begin+`; once update no; lower fast=3s,250ms,0s -> no; fails update no;
	after get raise slow 15s 1s 155s -> no; lower fast=3s,250ms,0s; works; count; raise slow 15s 1s 155s; wrote 1;
	of slow 15s 1s 155s
lowered while a raise awaits its answer: that raise fails
`+begin+`; once update no; lower fast=3s,250ms,0s -> no; after update lower fast=3s,250ms,0s;
	raise slow 15s 1s 155s -> conflict; raise slow 15s 1s 155s; of slow 15s 1s 155s
lowered while it is read: raised by a write
`+begin+`; after get lower fast=3s,250ms,0s; refresh; of slow 0s 0s 0s; raise slow 15s 1s 155s; of slow 15s 1s 155s
raised while it is lowered: has the larger ones
`+begin+`; once update same raise slow 15s 1s 155s; lower fast=3s,250ms,0s -> conflict;
	of fast 3s 250ms 0s; of slow 15s 1s 155s; replica 2; find; of slow 15s 1s 155s
`)
}

// What policies need is no more than the seal has, and a policy that needs nothing is dropped.
func TestNeeded(t *testing.T) {
	has := seal.Seal{Policies: both}
	for name, test := range map[string]struct{ needs, want map[string]seal.Bounds }{
		"as much":             {both, both},
		"no policy is left":   {nil, nil},
		"nothing is needed":   {map[string]seal.Bounds{"slow": {}}, nil},
		"one that it has not": {map[string]seal.Bounds{"new": {Duration: second}}, nil},
		"less of each": {map[string]seal.Bounds{"slow": {Duration: second, Skew: second / 2, Stop: second}},
			map[string]seal.Bounds{"slow": {Duration: second, Skew: second / 2, Stop: second}}},
		"more of each": {map[string]seal.Bounds{"slow": {Duration: time.Hour, Skew: time.Hour, Stop: time.Hour}},
			map[string]seal.Bounds{"slow": both["slow"]}},
		"only a stop time": {map[string]seal.Bounds{"slow": {Stop: second}}, map[string]seal.Bounds{"slow": {Stop: second}}},
	} {
		if got := has.Needed(test.needs); !maps.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// Rule 8: another installation is one on the same management cluster, in another namespace.
func TestOtherInstallation(t *testing.T) {
	own := marks["own"]
	for mark, want := range map[string]string{
		own: "", marks["beside"]: "platform", marks["moved"]: "", seal.Mark("77aa", "leasecast-system"): "", "": "",
		"9b2d": "", seal.Mark("9b2d0", "platform"): "", own + "-2": "leasecast-system-2", "9b2d/leasecast": "leasecast",
	} {
		if namespace, ok := seal.OtherInstallation(own, mark); ok != (want != "") || namespace != want {
			t.Errorf("%q: %t, in %q", mark, ok, namespace)
		}
	}
}

// Rule 8: of two installations on one management cluster, the one whose mark is on the seal serves the fleet.
func TestServe(t *testing.T) {
	play(t, `
no Secret: creates one with the mark that clusterctl move takes along
	remove; serve own; key; mark own; moves; bounds 0s 0s 0s
no Secret, the fleet is moving here: creates it
	remove; serve own moving; mark own
no Secret, two installations at once: one serves
	remove; once create serve beside; serve own -> served; mark beside
no mark: adds it, and leaves the rest
	edit team=platform; serve own; key; mark own; largest 15s 1s 0s; team platform
the own mark: reads once, and writes nothing
	edit mark=own; serve own; requests 1; wrote 0
the mark of another management cluster: replaces it
	edit mark=moved; serve own; key; mark own
the mark of another installation: does not serve, and names it
	edit mark=beside; serve own -> served; wrote 0; message in namespace platform
the mark of another installation has come since: does not serve
	serve own; edit mark=beside; count; serve own -> served; serve own moving -> served; wrote 0
no usable key: no mark
	edit drop=key; serve own -> broken; wrote 0
refused or not answered: one request
	find; count; fails all no; serve own -> no; requests 1
three conflicts: fails
	fails update conflict; serve own -> conflict; wrote 3
another key came by a move: uses that
	raise shops 60s 2s 17s; edit anotherKey bounds=20s,1s,0s; serve own; key; largest 20s 1s 0s; bounds 20s 1s 0s
deleted between a read and a write: creates it
	find; keep; once update conflict remove; serve own; kept-result; kept
deleted between a read and a write while the fleet moves: does not create it
	find; keep; once update conflict remove; serve own moving; kept-result; no-secret
deleted, and the Clusters cannot be listed: does not create it
	find; remove; serve own no -> no; no-secret; serve own; key
`)
}

// An empty Secret is filled with the seal in use, or a first one, unless only its mark is left.
func TestEmptySecret(t *testing.T) {
	play(t, `
served, no seal is known: filled with a first seal
	edit reset empty; serve own; key; mark own; moves
only found: not filled
	edit reset empty; find; no-key; wrote 0
served, a seal is known, the mark stays: filled with that
	find; keep; serve own; edit empty; serve own; kept; mark own
served while the fleet moves, a seal is known: filled with that
	find; keep; edit reset empty; serve own moving; kept; mark own
raised, a seal is known: filled with that and the larger bounds
	find; keep; edit reset empty; raise shops 60s 2s 17s; kept; bounds 60s 2s 17s
empty values, the own mark, and the seal is known: the hub fills them with it
	find; keep; edit mark=own blank; raise shops 60s 2s 17s; kept; bounds 60s 2s 17s
empty values, the own mark, and no seal is known: the error gives the command after which it is filled
	edit mark=own blank; find -> broken; message restore it; raise shops 60s 2s 17s -> broken; serve own -> broken;
	message kubectl -n fleet annotate secret leasecast-seal leasecast.dev/hub-; wrote 0; edit unmark; serve own; key
`)
}

// A Secret without a usable seal is never replaced: Leases are sealed with its key. What counts with D + ε must not
// overflow, whatever was edited.
func TestBrokenSecret(t *testing.T) {
	shop := func(d string) string {
		return fmt.Sprintf(`{"leaseDuration":%q,"maxClockSkew":"1s","stopTime":"0s"}`, d)
	}
	for name, edit := range map[string]string{
		"no key":                     "drop=key",
		"a short key":                "key=only-for-tests,-and-too-short",
		"policies that are not JSON": "policies={",
		"policies that are null":     "policies=null",
		"one of five policies has a negative D": fmt.Sprintf(`policies={"a":%[1]s,"b":%[1]s,"c":%[1]s,"d":%[1]s,"e":%[2]s}`,
			shop("15s"), shop("-15s")),
		"no D":                        "bounds=,1s,0s",
		"a negative D":                "bounds=-15s,1s,0s",
		"a D of a day and a second":   "bounds=86401s,1s,0s",
		"no ε":                        "bounds=15s,,0s",
		"an ε of an hour and 1 ns":    "bounds=15s,1h0m0.000000001s,0s",
		"a stop time of 5 h and 1 ns": "bounds=15s,1s,5h0m0.000000001s",
	} {
		play(t, name+"\n\tedit "+edit+"; find -> broken; message must; raise shops 60s 2s 17s -> broken; message must;"+
			"\n\tedit sound; replica 2; find; edit "+edit+"; raise shops 60s 2s 17s -> broken; message must; here 15s 1s 0s;"+
			"\n\twrote 0; edit sound; replica 1; bounds 15s 1s 0s")
	}
	play(t, `
the largest bounds are read
	edit bounds=1h,1h,5h; bounds 1h 1h 5h
`)
}

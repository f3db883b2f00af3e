package controller

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/seal"
)

// leaseNames are the names that policies give to Leases.
var leaseNames = [2]string{v1alpha1.DefaultLeaseName, "other"}

// scenario is what one seed draws: sizes, timings, and how likely each fault is.
type scenario struct {
	seed    uint64
	start   time.Time     // true time
	timings lease.Timings // Duration is the largest D
	// durations are the D that policies ask for, in seconds.
	durations []int32
	h         time.Duration
	spaces    []string

	faults time.Duration // how long faults may happen
	late, veryLate, loss, twice, busy,
	broken, lateHub, lateWatch, staleLists float64 // of each message
	stopAtReading float64 // of each reading of a clock
	longestStop   time.Duration
	calm          time.Duration // between two faults, at most
	kinds         []fault
	// candidates take over when the renewTime in the election's Lease says so, as in the product
	prompt       bool
	acknowledged bool          // readers register, and the policy says so
	registered   time.Duration // for how long, unless they confirm
	identities   int           // of readers
	raised       int32         // the highest priority so far
	ahead        bool          // a hub whose clock was ahead gave epochs: where they are lost, the next ones are lower
	wrongFrom    bool          // tenures begin with clocks that are wrong, which is outside the promise
	jumped       bool          // a reader's clock was stepped for good: it need not act again

	wider
}

// slack is what a leader may take beyond the floor once the faults have ended: the
// messages that are still under way, most of all the first list of a member, which waits
// 15 s for an answer, the health thresholds, patience and backoff.
const slack = 18 * time.Second

// settle is how long after the last fault each namespace must have a leader: what can
// have been promised, an election, and the slack.
func (s *scenario) settle() time.Duration {
	return 2*(s.timings.Duration+s.stops) + s.timings.Skew + s.h + slack
}

func (s *scenario) length() time.Duration { return s.faults + s.settle() }

// newWorld draws a world from a seed.
func newWorld(seed uint64, trace io.Writer) *world {
	return newWorldOf(nil, seed, trace)
}

// newWorldOf draws a world of a kind from a seed, which draws the kind as well if it is nil.
func newWorldOf(of *special, seed uint64, trace io.Writer) *world {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	w := &world{rng: rand.New(rand.NewChaCha8(key)), trace: trace, faulty: true}
	w.seed = seed
	w.drawTimings()
	w.h = time.Duration(pick(w.rng, []int{1, 2, 2, 3, 3, 3})) * time.Second
	w.spaces = []string{"ns1", "ns2"}[:1+w.rng.IntN(2)]
	w.faults = w.between(5*time.Second, 30*time.Second)
	w.longestStop = w.between(100*time.Millisecond, 12*time.Second)
	w.calm = w.between(500*time.Millisecond, 4*time.Second)
	for _, p := range []struct {
		of   *float64
		most float64
	}{
		{&w.late, 0.2}, {&w.veryLate, 0.03}, {&w.loss, 0.1}, {&w.twice, 0.1}, {&w.busy, 0.05}, {&w.broken, 0.05},
		{&w.lateHub, 0.1}, {&w.lateWatch, 0.3}, {&w.staleLists, 1}, {&w.stopAtReading, 0.005},
	} {
		if w.chance(0.5) { // each seed knows some faults only, so that others stand out
			*p.of = w.rng.Float64() * p.most
		}
	}
	for _, f := range allFaults {
		if w.chance(0.4) && (!f.clock || w.chance(0.2)) {
			w.kinds = append(w.kinds, f)
		}
	}
	w.prompt = w.chance(0.7)
	if w.acknowledged = w.chance(0.4); w.acknowledged {
		w.drawRegistered()
	}
	// In half of the worlds that lose records, all members can tell what they know.
	if slices.ContainsFunc(w.kinds, func(f fault) bool { return f.loses }) && w.chance(0.5) {
		w.kinds = slices.DeleteFunc(w.kinds, func(f fault) bool { return f.member })
		w.late, w.veryLate, w.lateHub, w.loss, w.busy, w.broken = 0, 0, 0, 0, 0, 0
	}
	if w.start = epoch0; seed%2 == 0 && !slices.ContainsFunc(w.kinds, func(f fault) bool { return f.loses }) {
		w.start = earlyEpoch0
	}
	w.installations = 1
	drawn := w.drawSpecial()
	if of == nil {
		of = &drawn
	}
	w.say("WORLD", "%s", of.name)
	of.draw(w)
	w.oracle.highest, w.oracle.last = map[string]int64{}, map[string]*member{}
	w.oracle.records = map[string]*recordOracle{}
	w.populate()
	return w
}

// populate makes servers and processes.
func (w *world) populate() {
	w.hub = &hubServer{
		records: map[string]*v1alpha1.NamespaceLeader{}, history: map[string][]recordThen{},
		clusters: map[string]simCluster{}, secret: &corev1.Secret{}, leaseServer: w.newLeaseServer(0, "hub"),
	}
	for _, key := range electionKeys {
		w.hub.spaces[key.Namespace] = space{}
	}
	w.hub.secret.Namespace, w.hub.secret.Name, w.hub.secret.ResourceVersion = simFleet, seal.SecretName, "0"
	w.hub.secret.Data = map[string][]byte{
		"key": simKey, "policies": []byte("{}"),
	}
	w.hub.policies = w.firstPolicies()
	for i := range 2 + w.rng.IntN(2) {
		m := w.newMember(i)
		for _, ns := range w.spaces {
			if i == 0 || w.quiet || w.chance(0.9) {
				m.spaces[ns] = space{}
			}
		}
		w.members = append(w.members, m)
		w.hub.clusters[m.name] = simCluster{priority: int32(w.rng.IntN(3)), label: true}
	}
	for i := range 1 + w.installations {
		w.startReplica(w.newClock(), max(0, i-1))
	}
	for _, m := range w.members {
		for i := range 1 + w.rng.IntN(2) {
			w.readers = append(w.readers, w.newReader(m, i, w.newClock()))
		}
		for _, l := range w.locks {
			w.startStock(m, l)
		}
	}
}

// startReplica starts a replica, and another one on the same host whenever it ends.
func (w *world) startReplica(host *hostClock, installation int) {
	r := w.newReplica(host, len(w.replicas), installation)
	w.replicas = append(w.replicas, r)
	w.revive(r)
}

func (w *world) revive(r *replica) {
	var look func()
	again := func() { w.after(w.between(100*time.Millisecond, time.Second), look) }
	look = func() {
		if r.alive {
			again()
			return
		}
		if !w.wrongFrom {
			r.host.step(0)
		}
		w.startReplica(r.host, r.installation)
	}
	again()
}

var simKey = seal.Key("0123456789abcdef0123456789abcdef")

// play runs the world to its end.
func (w *world) play() {
	if w.quiet {
		w.faulty = false
		w.lead()
		w.faulty, w.faults = true, w.now+w.faults
	}
	if len(w.kinds) > 0 {
		w.nextFault()
	}
	if w.outage > 0 {
		w.after(w.between(w.faults/4, w.faults/2), w.hubAway)
	}
	if w.acknowledged && !w.steady {
		w.handOver()
	}
	w.run(w.faults)
	w.heal()
	w.judgeFast()
	w.run(w.length())
	if w.oracle.violation == "" && !w.jumped {
		w.judge()
	}
	w.end()
}

func (w *world) nextFault() {
	w.soon(10*time.Millisecond, w.calm, func() {
		f := w.kinds[w.rng.IntN(len(w.kinds))]
		w.say("FAULT", "%s", f.name)
		f.do(w)
		w.nextFault()
	})
}

// failsBack reports whether a planned change by the policy's failback has begun a short while ago.
func (w *world) failsBack(r *v1alpha1.NamespaceLeader) bool {
	return r != nil && r.Spec.State == v1alpha1.StateEnding && r.Spec.Reason == reason.Failback &&
		w.start.Add(w.now).Sub(r.Spec.Since.Time) < 2*time.Duration(r.Spec.LeaseDurationSeconds)*time.Second
}

// judge asks whether everything is as it has to be once the faults are over: each
// namespace has a leader, the one that the record names, and every Lease is sealed.
func (w *world) judge() {
	for _, ns := range w.spaces {
		r := w.hub.records[ns]
		switch leader := w.leader(ns); {
		case leader == nil && w.ahead && r != nil && r.Spec.Epoch < w.oracle.seen:
		case w.failsBack(r):
			// A cluster was able to lead for long enough just now.
		case leader == nil:
			w.stuck("%s: nobody may act %v after the last fault", ns, w.settle())
			return
		case r == nil || r.Spec.Leader != leader.m.name:
			w.stuck("%s: %s acts, but the record says otherwise", ns, leader.name)
			return
		case r.Spec.State != v1alpha1.StateLeading:
			w.stuck("%s: the record is still %s", ns, r.Spec.State)
			return
		}
		w.judgeCopies(ns, r)
	}
	// A takeover counts with the largest ε, which nothing else tells.
	sealed := w.hub.sealed
	if sealed.Skew < w.timings.Skew {
		w.stuck("the seal remembers an ε of %v, and the policy's is %v", sealed.Skew, w.timings.Skew)
	}
	for _, o := range w.hub.policies {
		if stop := decide.ParsePolicy(o).Election.StopTime; sealed.Stop < stop {
			w.stuck("the seal remembers a stop time of %v, and that of policy %s is %v", sealed.Stop, o.Name, stop)
		}
	}
	w.judgeLocks()
}

// judgeCopies asks whether each cluster's Lease is as the record says. Followers' Leases wait half a second, and
// requests take time.
func (w *world) judgeCopies(ns string, r *v1alpha1.NamespaceLeader) {
	if w.start.Add(w.now).Sub(r.Spec.Since.Time) < time.Second+w.timings.Skew {
		return
	}
	for _, m := range w.members {
		if _, ok := m.spaces[ns]; !ok || w.ahead && r.Spec.Epoch < w.oracle.seen {
			continue
		}
		obj := m.leases[types.NamespacedName{Namespace: ns, Name: r.Spec.LeaseName}]
		if obj == nil {
			w.stuck("%s: no Lease in %s", ns, m.name)
			return
		}
		c, mac := wire.Read(obj)
		if !simKey.Sealed(c, mac) || c.Holder != lease.Identity(r.Spec.Leader, simFleet) || c.Epoch != r.Spec.Epoch {
			w.stuck("%s: the Lease in %s is not as it has to be: %s", ns, m.name,
				describeLease(types.NamespacedName{Namespace: ns}, obj))
			return
		}
	}
}

func (w *world) stuck(format string, args ...any) {
	if w.oracle.violation == "" {
		w.oracle.violation, w.oracle.stuck = fmt.Sprintf(format, args...), true
		w.say("ORACLE", "%s", w.oracle.violation)
	}
}

func sortedKeys[V any](m map[types.NamespacedName]V) []types.NamespacedName {
	return slices.SortedFunc(maps.Keys(m), func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

func describeLease(key types.NamespacedName, obj *coordinationv1.Lease) string {
	if obj == nil {
		return key.String() + " is gone"
	}
	c, mac := wire.Read(obj)
	return fmt.Sprintf("%s v%s %s holder %q epoch %d stamp %s+%v sealed %v", key, obj.ResourceVersion, obj.UID, c.Holder,
		c.Epoch, c.RenewTime.UTC().Format("04:05.000000"), c.Duration, simKey.Sealed(c, mac))
}

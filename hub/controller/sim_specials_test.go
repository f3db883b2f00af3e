package controller

import (
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

// wider is what few worlds have, each for a hole that the others cannot show.
type wider struct {
	// installations is how many hubs run on the management cluster: the second one has to stand back.
	installations int
	// steady worlds have trouble with the hub only: once a namespace has a leader, it keeps it.
	steady bool
	// extends worlds have somebody who edits Leases so that they promise more.
	extends bool
	// steps worlds have wall clocks of the hub's hosts that are wrong by more than D for a while.
	steps bool
	// locks are those of stock controllers, fenced what each policy states of them, and homes the same at the beginning.
	locks         []*stockLock
	fenced, homes map[string][]v1alpha1.LockFence
	// quiet worlds begin their faults when every namespace has a leader.
	quiet bool
	// stops is the longest stop time that policies state, and hanging how many requests of stock controllers hang.
	stops   time.Duration
	hanging float64
	// allFenced: every member is reached, and takes the fences that are asked for.
	allFenced bool
	made      int // policies
	// refused is when the next member may refuse the hub.
	refused time.Duration
	// outage is for how long the management cluster goes away once, and slow for how long each member answers nobody
	// after it, at most.
	outage, slow time.Duration
	back         time.Duration // when the management cluster is there again
}

// drawTimings draws ε, and a D that leaves room for it.
func (w *world) drawTimings() {
	w.timings = lease.Timings{Renew: time.Second, Timeout: 500 * time.Millisecond, Skew: 250 * time.Millisecond}
	w.durations = []int32{3, 4, 6}
	if w.chance(0.25) {
		w.timings.Skew = pick(w.rng, []time.Duration{time.Second, 2 * time.Second, 5 * time.Second})
		least := int32((2*w.timings.Renew + w.timings.Timeout + w.timings.Skew + time.Second - 1) / time.Second)
		w.durations = []int32{least, least + 1, least + 3}
	}
	w.timings.Duration = time.Duration(w.durations[len(w.durations)-1]) * time.Second
}

// special is a kind of world that few are of. Each knows few faults besides, so that its own stands out.
type special struct {
	name string
	draw func(*world)
}

// common worlds have nothing special.
var common = special{"nothing special", func(*world) {}}

var (
	steadyWorld = special{"the hub alone has trouble, and the management cluster goes away", func(w *world) {
		w.steady = true
		// A replica that is stopped, or reads the seal for a member late, has not reached the member in time.
		w.only(func(f fault) bool { return hubsOwn(f) && !strings.Contains(f.name, "stopped") })
		w.lateHub, w.stopAtReading = 0, 0
		if w.chance(0.7) {
			w.away()
		}
	}}
	extendsWorld = special{"somebody edits Leases so that they promise more", func(w *world) {
		w.extends = true
		w.only(func(f fault) bool {
			// Who sees the edit and not that it was put right acts by it: see hub/README.md.
			late := strings.Contains(f.name, "reader") || strings.Contains(f.name, "watch") ||
				strings.Contains(f.name, "API server")
			return hubsOwn(f) && !late || strings.Contains(f.name, "priority")
		})
		w.kinds = append(w.kinds, moreFault, moreFault)
		w.lateHub = 0 // nor has a hub that reads the seal for a member so late reached the member
	}}
	stepsWorld = special{"wall clocks of the hub's hosts are wrong for a while", func(w *world) {
		w.steps, w.wrongFrom = true, true
		w.kinds = append(w.kinds, stepFault)
		if w.chance(0.5) {
			w.only(func(f fault) bool { return hubsOwn(f) || f.name == stepFault.name })
		}
	}}
	twoWorld  = special{"two installations share a management cluster", func(w *world) { w.installations = 2 }}
	awayWorld = special{"the management cluster goes away", (*world).away}
)

func hubsOwn(f fault) bool { return !f.member && !f.loses && !f.clock && !f.edits }

// specials are the kinds of worlds, each with how many of a hundred are of it. All others are common.
var specials = []struct {
	percent int
	special
}{
	{6, steadyWorld}, {3, extendsWorld}, {5, stepsWorld}, {4, twoWorld}, {3, awayWorld},
	{4, locksWorld}, {2, rivalsWorld}, {2, movesWorld}, {2, unfenceableWorld},
	{2, rebuiltWorld}, {2, refusalWorld},
}

// drawSpecial says what a world is of.
func (w *world) drawSpecial() special {
	n := w.rng.IntN(100)
	for _, s := range specials {
		if n -= s.percent; n < 0 {
			return s.special
		}
	}
	return common
}

// only leaves few kinds of faults, and messages to members that arrive.
func (w *world) only(keep func(fault) bool) {
	w.kinds = slices.DeleteFunc(w.kinds, func(f fault) bool { return !keep(f) })
	w.late, w.veryLate, w.loss, w.twice, w.busy, w.broken, w.lateWatch, w.staleLists = 0, 0, 0, 0, 0, 0, 0, 0
}

// away has the management cluster go away for longer than any promise lasts.
func (w *world) away() {
	w.outage = w.timings.Duration + w.timings.Skew + w.h + w.between(0, time.Minute)
	w.faults += w.outage
	// A leader that answers within D of an election is not deposed for it: probes and lists are tried again for longer
	// and longer, which takes some time.
	w.slow = time.Duration(w.durations[0])*time.Second/2 - 500*time.Millisecond
}

// hubAway is that outage.
func (w *world) hubAway() {
	w.say("FAULT", "the management cluster is away for %v", w.outage)
	w.hub.frozen = max(w.hub.frozen, w.now+w.outage)
	w.back = w.now + w.outage
	w.after(w.outage, func() {
		for _, r := range w.replicas {
			w.slowStart(r)
		}
	})
}

// slowStart has members answer a replica that starts after the outage at different times.
func (w *world) slowStart(r *replica) {
	if w.slow == 0 || w.back == 0 || w.now < w.back || w.now > w.back+w.h || !w.faulty || !r.alive || r.working {
		return
	}
	for _, m := range w.members {
		w.cutAs(r.proc, &m.machine, link{true, true}, w.between(0, w.slow))
	}
}

// moreFault edits a leader's Lease so that it promises more. Whoever may publish can do so.
var moreFault = fault{name: "a leader's Lease is edited to promise more", do: func(w *world) {
	m := pick(w.rng, w.members)
	for _, key := range m.copyKeys() {
		obj := m.leases[key].DeepCopy()
		c, _ := wire.Read(obj)
		// A Lease that is about to end would be followed by another leader before anybody can have seen the edit.
		if now := w.start.Add(w.now); !c.LeadsHere() || !c.Live(now.Add(w.timings.Skew+500*time.Millisecond)) {
			continue
		}
		n := w.rng.IntN(3)
		if n != 0 {
			obj.Spec.LeaseDurationSeconds = ptr.To[int32](600)
		}
		if n != 1 {
			obj.Spec.RenewTime.Time = w.start.Add(w.now + w.between(0, w.timings.Skew/2))
		}
		w.say("FAULT", "%s promises more", key)
		m.put(key, obj, obj.UID)
	}
}}

// stepFault makes the wall clock of the elected replica's host wrong by more than D, for a while or to the end of all
// faults. A step forward by a little more than D is not among them: when true time has come that far, a reader may
// believe what it refused before, and of clocks beyond ε nothing is promised.
var stepFault = fault{name: "the wall clock of the elected replica's host is wrong for a while", do: func(w *world) {
	for _, r := range w.elected() {
		if r.host.jump != 0 {
			continue
		}
		const hour, days = time.Hour, 13 * 24 * time.Hour
		d := w.timings.Duration
		by := pick(w.rng, []time.Duration{-hour, -days, hour, days, -w.between(d, 3*d)})
		w.say("FAULT", "the wall clock of %s is wrong by %v", r.name, by)
		r.host.step(by)
		if w.chance(0.7) {
			w.after(w.between(50*time.Millisecond, 20*time.Second), func() { r.host.step(0) })
		}
		return
	}
}, clock: true}

// deadReader has the connection of a reader die silently: nothing arrives until it finds out and lists anew.
var deadReader = fault{name: "the connection of a reader dies silently", do: func(w *world) {
	r := pick(w.rng, w.readers)
	if r.wt == nil || r.muted {
		return
	}
	r.muted = true
	w.after(w.between(w.timings.Renew, w.timings.Duration), r.hear)
}}

// hear ends that a reader hears nothing. Its watch begins again.
func (r *reader) hear() {
	if r.muted = false; r.wt != nil {
		r.wt.relist(0)
	}
}

// reattach has the elected replica let go of a member and take it up again, as when its kubeconfig changes.
var reattach = fault{name: "a member is attached anew", do: func(w *world) {
	for _, r := range w.elected() {
		if !r.frozen {
			pick(w.rng, r.contacts).reattach()
		}
	}
}, member: true}

const (
	noticed = 2 * time.Second  // how long it takes to measure that a clock is wrong
	calmed  = 10 * time.Second // and to trust it again
)

// step makes the wall clock wrong by that much, or right.
func (c *hostClock) step(by time.Duration) {
	c.before, c.jump, c.stepped = c.jump, by, c.w.now
	for _, d := range []time.Duration{noticed, calmed} {
		c.w.after(d, func() {
			for _, r := range c.w.replicas {
				if r.host == c && r.alive {
					r.reconcileAll()
				}
			}
		})
	}
}

// unnoticed reports whether the clock is wrong and the members have not proved it yet.
func (c *hostClock) unnoticed() bool { return c.jump != 0 && c.w.now-c.stepped < noticed }

// wrong is by how much the members prove the clock to be wrong: sooner or later by what it is.
func (c *hostClock) wrong() time.Duration {
	switch since := c.w.now - c.stepped; {
	case c.jump != 0 && since >= noticed:
		return c.jump
	case c.jump == 0 && since < calmed:
		return c.before
	default:
		return 0
	}
}

// rebuiltWorld has Clusters that are deleted, and made again for another cluster of the same name.
var rebuiltWorld = special{"Clusters are deleted, and made again for other clusters", func(w *world) {
	if w.chance(0.5) {
		w.drawLocks()
	}
	if w.chance(0.5) {
		w.only(func(f fault) bool { return hubsOwn(f) || strings.Contains(f.name, "priority") })
	}
	w.quiet = w.chance(0.5)
	w.kinds = append(w.kinds, rebuiltFault, rebuiltFault)
}}

// rebuiltFault deletes a Cluster, and makes it again a while later. What was behind it is another cluster then. The old
// one may be gone, or it goes on out of the hub's reach.
var rebuiltFault = fault{name: "a Cluster is deleted, and made again for another cluster", do: func(w *world) {
	i := w.rng.IntN(len(w.members))
	old := w.members[i]
	if w.hub.clusters[old.name].gone {
		return
	}
	w.editCluster(old.name, func(c *simCluster) { c.gone = true })
	if w.chance(0.5) {
		w.after(w.between(0, 3*time.Second), func() { w.endProcesses(old) })
	}
	w.after(w.between(500*time.Millisecond, 10*time.Second), func() { w.rebuild(i) })
}, edits: true}

// endProcesses ends all readers and controllers of a member.
func (w *world) endProcesses(m *member) {
	for _, r := range w.readers {
		if r.m == m {
			r.crash()
		}
	}
	for _, s := range w.stocks {
		if s.m == m {
			s.crash()
		}
	}
}

// rebuild makes a Cluster again. The cluster behind it has a UID of its own, and no Leases yet.
func (w *world) rebuild(i int) {
	old := w.members[i]
	w.identities++
	m := w.newMember(i)
	m.uid += "-" + strconv.Itoa(w.identities)
	for ns := range old.spaces {
		m.spaces[ns] = space{}
	}
	m.generation = old.generation + 1
	w.members[i] = m
	for j, r := range w.readers {
		switch {
		case r.m != old:
		case r.alive: // it goes on, out of the hub's reach
			w.readers = append(w.readers, w.newReader(m, r.number, w.newClock()))
		default:
			w.readers[j] = w.newReader(m, r.number, w.newClock())
		}
	}
	for _, l := range w.locks {
		w.startStock(m, l)
	}
	w.editCluster(m.name, func(c *simCluster) { c.gone, c.generation = false, m.generation })
}

// follow has a replica reach the clusters that are behind the Clusters now.
func (r *replica) follow() {
	for i, ct := range r.contacts {
		m := r.w.members[i]
		if c := r.clusters[m.name]; c.gone || c.generation != m.generation || ct.m == m {
			continue
		}
		r.w.say(r.name, "reaches another cluster as %s", m.name)
		next := r.newContact(m)
		r.contacts[i] = next
		ct.detach(func() {
			next.probe()
			if r.working {
				r.spawn(next.attach)
			}
		})
	}
}

// refusalWorld has members that refuse the hub for a moment, as one does that was restored: first it knows no token,
// and then no role. The term is not over before its deadline, so nobody else leads.
var refusalWorld = special{"a member refuses the hub for a moment", func(w *world) {
	w.acknowledged, w.steady, w.quiet = false, true, true
	w.durations = w.durations[2:] // so that something of a term is left
	w.only(func(fault) bool { return false })
	w.lateHub, w.stopAtReading = 0, 0
	w.kinds = []fault{refusalFault}
}}

// refusalFault has one member refuse all requests of the hub. A leader's last renewal is Renew old at most, its next
// one comes after the refusal has ended and the member has answered for RecoverAfter, which is Renew.
var refusalFault = fault{name: "a member refuses the hub", do: func(w *world) {
	if w.now < w.refused {
		return
	}
	m := pick(w.rng, w.members)
	d := time.Duration(w.durations[0]) * time.Second
	until := w.now + w.between(100*time.Millisecond, d-3*w.timings.Renew-w.timings.Timeout-w.timings.Skew)
	w.refused = until + 2*d
	err := pick(w.rng, []error{apierrors.NewUnauthorized("unknown token"),
		apierrors.NewForbidden(leaseResource, "", errRefused)})
	m.deny = func(key types.NamespacedName) error {
		if w.now < until && key.Namespace != podSpace {
			return err
		}
		return nil
	}
	m.refuse = m.deny
}, member: true}

// answersProbe is what the member says to a probe of the hub.
func (m *member) answersProbe() (struct{}, error) {
	return struct{}{}, m.refuse(types.NamespacedName{})
}

// usual reports whether the world has nothing special.
func (w *world) usual() bool {
	return w.installations == 1 && !w.steady && !w.extends && !w.steps && w.stops == 0 && w.outage == 0 && !w.manual() &&
		w.timings.Skew == 250*time.Millisecond
}

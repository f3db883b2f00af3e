package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/proxy"
)

const (
	// window is when faults begin, counted from the beginning of a schedule.
	window = 9 * time.Second
	// fewest and most are how many faults a schedule has.
	fewest, most = 6, 10
	// mostOnHub is how many of them hit the hub, its API server and the link to it.
	mostOnHub = 3
	grid      = 100 * time.Millisecond
	second    = time.Second
)

// Leader is the target of a fault that hits whichever member leads when the schedule is played.
const Leader = "leader"

// Parts of a fault's target. While it lasts, the fault has them for itself.
const (
	itself     = "process" // of a replica of the hub, or of a member's reader
	server     = "server"
	link       = "link"
	kubeconfig = "kubeconfig"
	label      = "label"
)

// player plays a fault from beginning to end. When it returns, everything is as before, except what the product has to
// repair. After an error the stage is broken.
type player func(*stage, context.Context, *Applied)

// place is where faults of a kind happen.
type place int

const (
	inMember    place = iota
	inNamespace       // of a member
	inLeader          // in a member that leads
	inServer          // in a member or on the hub
	inReplica         // of the hub
)

// kind is a kind of fault, and how to draw its faults.
type kind struct {
	name           string
	weight         int
	least, longest time.Duration
	// after is roughly how long the processes take to be back after the fault.
	after time.Duration
	in    place
	// parts are those of the target that the fault needs, or hubServer.
	parts []string
	// choices is how many variants there are.
	choices int
	play    player
}

func of(parts ...string) []string { return parts }

// kinds are in a fixed order: the same seed draws the same faults.
var kinds = []*kind{
	{name: "hub-pause", weight: 6, least: second / 2, longest: 8 * second, in: inReplica, parts: of(itself),
		play: (*stage).pauseProcess},
	{name: "hub-kill", weight: 6, least: second / 10, longest: 3 * second, after: second, in: inReplica, parts: of(itself),
		play: (*stage).killProcess},
	{name: "apiserver-pause", weight: 5, least: second / 2, longest: 6 * second, in: inServer, parts: of(server),
		play: pausing(apiServer, (*fleet.Server).Pause, (*fleet.Server).Resume)},
	{name: "apiserver-kill", weight: 4, least: second / 10, longest: 3 * second, after: 5 * second, in: inServer,
		parts: of(server), play: killing(apiServer, (*fleet.Server).Kill, (*fleet.Server).Restart)},
	{name: "etcd-pause", weight: 4, least: second / 2, longest: 6 * second, in: inServer, parts: of(server),
		play: pausing(etcd, (*fleet.Server).PauseEtcd, (*fleet.Server).ResumeEtcd)},
	{name: "etcd-kill", weight: 3, least: second / 10, longest: 3 * second, after: 2 * second, in: inServer,
		parts: of(server), play: killing(etcd, (*fleet.Server).KillEtcd, (*fleet.Server).RestartEtcd)},
	{name: "etcd-restore", weight: 3, least: second / 2, longest: 5 * second, after: 7 * second, parts: of(server),
		play: (*stage).restore},
	{name: "reader-pause", weight: 4, least: second / 2, longest: 6 * second, parts: of(itself),
		play: (*stage).pauseProcess},
	{name: "reader-kill", weight: 4, least: second / 10, longest: 2 * second, after: second, parts: of(itself),
		play: (*stage).killProcess},
	{name: "reader-sleeps-through", weight: 8, least: 6 * second, longest: 8 * second, in: inLeader,
		parts: of(link, itself), play: (*stage).sleepThrough},
	{name: "link-cut-to", weight: 4, least: second / 2, longest: 6 * second, in: inServer, parts: of(link),
		play: breaking((*proxy.Proxy).CutToMember)},
	{name: "link-cut-from", weight: 4, least: second / 2, longest: 6 * second, in: inServer, parts: of(link),
		play: breaking((*proxy.Proxy).CutFromMember)},
	{name: "link-black-hole", weight: 4, least: second / 2, longest: 6 * second, in: inServer, parts: of(link),
		play: breaking((*proxy.Proxy).BlackHole)},
	{name: "link-half-open", weight: 3, least: second / 2, longest: 3 * second, after: 5 * second,
		parts: of(link, server), play: (*stage).halfOpen},
	{name: "link-delay", weight: 4, least: second, longest: 6 * second, in: inServer, parts: of(link), choices: 9,
		play: (*stage).delay},
	{name: "link-reset", weight: 3, least: second / 2, longest: 5 * second, in: inServer, parts: of(link),
		play: breaking((*proxy.Proxy).Reset)},
	{name: "late-renewal", weight: 6, least: 4 * second, longest: 7 * second, in: inLeader, parts: of(link),
		play: (*stage).letThroughLate},
	{name: "lease-delete", weight: 4, in: inNamespace, parts: of(server), play: (*stage).deleteLease},
	{name: "lease-edit", weight: 5, in: inNamespace, parts: of(server), choices: len(edits), play: (*stage).editLease},
	{name: "kubeconfig-rotate", weight: 3, least: 2 * second, longest: 5 * second,
		parts: of(kubeconfig, server, hubServer), choices: 2, play: (*stage).rotate},
	{name: "namespace-delete", weight: 3, least: second / 10, longest: second, after: 7 * second, in: inNamespace,
		parts: of(server), play: (*stage).recreateNamespace},
	{name: "priority-change", weight: 4, parts: of(label, hubServer), choices: 2, play: (*stage).prefer},
}

// Fault is one fault of a schedule.
type Fault struct {
	Kind *kind
	// Target is a server (hub, east ...), a replica of the hub (hub-1, hub-2), or Leader: the member that acts in the
	// namespace when the fault begins.
	Target string
	// Namespace is for the kinds that hit one, and for Leader.
	Namespace string
	// At is when it begins, counted from the beginning of the schedule, and For is how long it lasts. The restart of
	// processes takes additional time.
	At, For time.Duration
	// Choice is for the kinds that come in variants: a delay, a field, a priority.
	Choice int
}

// String describes the fault.
func (f Fault) String() string {
	where := f.Target
	if f.Namespace != "" {
		where += " of " + f.Namespace
	}
	return fmt.Sprintf("%5.1f s  %-22s %-16s for %.1f s", f.At.Seconds(), f.Kind.name, where, f.For.Seconds())
}

// Schedule is a list of faults for a fleet.
type Schedule struct {
	Seed   uint64
	Faults []Fault
}

// Generate makes the schedule of a seed. Equal seeds make equal schedules.
func Generate(seed uint64) Schedule {
	random := rand.New(rand.NewPCG(seed, 0xc4a05))
	s := Schedule{Seed: seed}
	want := fewest + random.IntN(most-fewest+1)
	// Without a hub no leader changes. So half of all schedules spare it, and the others do not hit it all the time.
	hubLeft := mostOnHub * random.IntN(2)
	for tries := 0; len(s.Faults) < want && tries < 20*most; tries++ {
		f := draw(random)
		if f.onHub() && hubLeft == 0 || slices.ContainsFunc(s.Faults, func(other Fault) bool { return collide(f, other) }) {
			continue
		}
		if f.onHub() {
			hubLeft--
		}
		s.Faults = append(s.Faults, f)
	}
	slices.SortStableFunc(s.Faults, func(a, b Fault) int { return int(a.At - b.At) })
	return s
}

// draw draws one fault.
func draw(random *rand.Rand) Fault {
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	ticket, i := random.IntN(total), 0
	for ; ticket >= kinds[i].weight; i++ {
		ticket -= kinds[i].weight
	}
	k := kinds[i]
	f := Fault{Kind: k, At: time.Duration(random.Int64N(int64(window/grid))) * grid, For: k.least}
	if span := int64((k.longest - k.least) / grid); span > 0 {
		f.For += time.Duration(random.Int64N(span+1)) * grid
	}
	if k.choices > 0 {
		f.Choice = random.IntN(k.choices)
	}
	from := memberNames()
	switch k.in {
	case inReplica:
		from = hubReplicas
	case inServer:
		from = append(from, hubServer)
	}
	f.Target = from[random.IntN(len(from))]
	switch heads := random.IntN(2) == 0; {
	case f.onHub():
	case heads, k.in == inLeader: // where nothing is led there is less to see
		f.Target = Leader
		f.Namespace = allNamespaces()[random.IntN(len(allNamespaces()))]
	case k.in == inNamespace:
		in := namespacesOf(f.Target)
		f.Namespace = in[random.IntN(len(in))]
	}
	return f
}

func (f Fault) onHub() bool { return f.Target == hubServer || slices.Contains(hubReplicas, f.Target) }

// locks name what a fault needs for itself while it lasts. A fault at Leader waits if another fault has the member that
// leads.
func (f Fault) locks() (names []string) {
	for _, part := range f.Kind.parts {
		if part == hubServer {
			names = append(names, hubServer+" "+server)
			continue
		}
		names = append(names, f.Target+" "+part)
	}
	return names
}

// collide reports whether two faults need the same lock at the same time.
func collide(a, b Fault) bool {
	if a.At > b.At {
		a, b = b, a
	}
	return b.At < a.At+a.For+a.Kind.after+second/2 &&
		slices.ContainsFunc(a.locks(), func(l string) bool { return slices.Contains(b.locks(), l) })
}

// String describes the schedule.
func (s Schedule) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "seed %d: %d faults\n", s.Seed, len(s.Faults))
	for _, f := range s.Faults {
		fmt.Fprintf(&out, "    %s\n", f)
	}
	return out.String()
}

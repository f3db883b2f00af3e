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
	half      = second / 2
	tenth     = second / 10
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
// repair. After an error the testbed is broken.
type player func(*testbed, context.Context, *Applied)

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
	{"hub-pause", 6, half, 8 * second, 0, inReplica, of(itself), 0, (*testbed).pauseProcess},
	{"hub-kill", 6, tenth, 3 * second, second, inReplica, of(itself), 0, (*testbed).killProcess},
	{"apiserver-pause", 5, half, 6 * second, 0, inServer, of(server), 0,
		pausing(apiServer, (*fleet.Server).Pause, (*fleet.Server).Resume)},
	{"apiserver-kill", 4, tenth, 3 * second, 5 * second, inServer, of(server), 0,
		killing(apiServer, (*fleet.Server).Kill, (*fleet.Server).Restart)},
	{"etcd-pause", 4, half, 6 * second, 0, inServer, of(server), 0,
		pausing(etcd, (*fleet.Server).PauseEtcd, (*fleet.Server).ResumeEtcd)},
	{"etcd-kill", 3, tenth, 3 * second, 2 * second, inServer, of(server), 0,
		killing(etcd, (*fleet.Server).KillEtcd, (*fleet.Server).RestartEtcd)},
	{"etcd-restore", 3, half, 5 * second, 7 * second, inMember, of(server), 0, (*testbed).restore},
	{"reader-pause", 4, half, 6 * second, 0, inMember, of(itself), 0, (*testbed).pauseProcess},
	{"reader-kill", 4, tenth, 2 * second, second, inMember, of(itself), 0, (*testbed).killProcess},
	{"reader-sleeps-through", 8, 6 * second, 8 * second, 0, inLeader, of(link, itself), 0, (*testbed).sleepThrough},
	{"link-cut-to", 4, half, 6 * second, 0, inServer, of(link), 0, breaking((*proxy.Proxy).CutToMember)},
	{"link-cut-from", 4, half, 6 * second, 0, inServer, of(link), 0, breaking((*proxy.Proxy).CutFromMember)},
	{"link-black-hole", 4, half, 6 * second, 0, inServer, of(link), 0, breaking((*proxy.Proxy).BlackHole)},
	{"link-half-open", 3, half, 3 * second, 5 * second, inMember, of(link, server), 0, (*testbed).halfOpen},
	{"link-delay", 4, second, 6 * second, 0, inServer, of(link), 9, (*testbed).delay},
	{"link-reset", 3, half, 5 * second, 0, inServer, of(link), 0, breaking((*proxy.Proxy).Reset)},
	{"late-renewal", 6, 4 * second, 7 * second, 0, inLeader, of(link), 0, (*testbed).letThroughLate},
	{"lease-delete", 4, 0, 0, 0, inNamespace, of(server), 0, (*testbed).deleteLease},
	{"lease-edit", 5, 0, 0, 0, inNamespace, of(server), len(edits), (*testbed).editLease},
	{"kubeconfig-rotate", 3, 2 * second, 5 * second, 0, inMember, of(kubeconfig, server, hubServer), 2, (*testbed).rotate},
	{"namespace-delete", 3, tenth, second, 7 * second, inNamespace, of(server), 0, (*testbed).recreateNamespace},
	{"priority-change", 4, 0, 0, 0, inMember, of(label, hubServer), 2, (*testbed).prefer},
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

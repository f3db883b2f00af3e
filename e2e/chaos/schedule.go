package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Kind is a kind of fault.
type Kind string

// The kinds of faults. faults.go plays them.
const (
	HubPause        Kind = "hub-pause"
	HubKill         Kind = "hub-kill"
	ServerPause     Kind = "apiserver-pause"
	ServerKill      Kind = "apiserver-kill"
	EtcdPause       Kind = "etcd-pause"
	EtcdKill        Kind = "etcd-kill"
	EtcdRestore     Kind = "etcd-restore"
	ReaderPause     Kind = "reader-pause"
	ReaderKill      Kind = "reader-kill"
	Sleeper         Kind = "reader-sleeps-through"
	LinkCutTo       Kind = "link-cut-to"
	LinkCutFrom     Kind = "link-cut-from"
	LinkBlackHole   Kind = "link-black-hole"
	LinkHalfOpen    Kind = "link-half-open"
	LinkDelay       Kind = "link-delay"
	LinkReset       Kind = "link-reset"
	LateRenewal     Kind = "late-renewal"
	LeaseDelete     Kind = "lease-delete"
	LeaseEdit       Kind = "lease-edit"
	KubeconfigSwap  Kind = "kubeconfig-rotate"
	NamespaceDelete Kind = "namespace-delete"
	Priority        Kind = "priority-change"
)

const (
	// window is when faults begin, counted from the beginning of a schedule.
	window = 9 * time.Second
	// fewest and most are how many faults a schedule has.
	fewest, most = 6, 10
	// mostOnHub is how many of them hit the hub, its API server and the way to it.
	mostOnHub = 3
	grid      = 100 * time.Millisecond
)

// Leader is the target of a fault that hits whichever member leads when the schedule is played.
const Leader = "leader"

// Fault is one fault of a schedule.
type Fault struct {
	Kind Kind
	// Target is a server (hub, east ...), a replica of the hub (hub-1, hub-2), or Leader: the member that acts in the
	// namespace when the fault begins.
	Target string
	// Namespace is for the kinds that hit one, and for Leader.
	Namespace string
	// At is when it begins, counted from the beginning of the schedule, and For is how long it lasts. The restart of
	// processes takes additional time.
	At, For time.Duration
	// Choice is for the kinds that come in variants: a delay, a field, a priority.
	Choice int `json:",omitempty"`
}

// String describes the fault.
func (f Fault) String() string {
	where := f.Target
	if f.Namespace != "" {
		where += " of " + f.Namespace
	}
	return fmt.Sprintf("%5.1f s  %-22s %-16s for %.1f s", f.At.Seconds(), f.Kind, where, f.For.Seconds())
}

// Schedule is a list of faults for a fleet.
type Schedule struct {
	Seed   uint64
	Faults []Fault
}

// recipe defines how to draw faults of one kind.
type recipe struct {
	weight         int
	least, longest time.Duration
	// after is roughly how long the processes take to be back after the fault.
	after time.Duration
	// hub: the fault may also hit the hub's server or replicas.
	hub bool
	// choices is how many variants there are.
	choices int
	// namespaced faults hit one namespace.
	namespaced bool
	// leading: the fault hits a member that leads.
	leading bool
}

const second = time.Second

// recipes are in a fixed order: the same seed draws the same faults.
var recipes = []struct {
	Kind
	recipe
}{
	{HubPause, recipe{weight: 6, least: second / 2, longest: 8 * second, hub: true}},
	{HubKill, recipe{weight: 6, least: second / 10, longest: 3 * second, after: second, hub: true}},
	{ServerPause, recipe{weight: 5, least: second / 2, longest: 6 * second, hub: true}},
	{ServerKill, recipe{weight: 4, least: second / 10, longest: 3 * second, after: 5 * second, hub: true}},
	{EtcdPause, recipe{weight: 4, least: second / 2, longest: 6 * second, hub: true}},
	{EtcdKill, recipe{weight: 3, least: second / 10, longest: 3 * second, after: 2 * second, hub: true}},
	{EtcdRestore, recipe{weight: 3, least: second / 2, longest: 5 * second, after: 7 * second}},
	{ReaderPause, recipe{weight: 4, least: second / 2, longest: 6 * second}},
	{ReaderKill, recipe{weight: 4, least: second / 10, longest: 2 * second, after: second}},
	{Sleeper, recipe{weight: 8, least: 6 * second, longest: 8 * second, leading: true}},
	{LinkCutTo, recipe{weight: 4, least: second / 2, longest: 6 * second, hub: true}},
	{LinkCutFrom, recipe{weight: 4, least: second / 2, longest: 6 * second, hub: true}},
	{LinkBlackHole, recipe{weight: 4, least: second / 2, longest: 6 * second, hub: true}},
	{LinkHalfOpen, recipe{weight: 3, least: second / 2, longest: 3 * second, after: 5 * second}},
	{LinkDelay, recipe{weight: 4, least: second, longest: 6 * second, hub: true, choices: 9}},
	{LinkReset, recipe{weight: 3, least: second / 2, longest: 5 * second, hub: true}},
	{LateRenewal, recipe{weight: 6, least: 4 * second, longest: 7 * second, leading: true}},
	{LeaseDelete, recipe{weight: 4, namespaced: true}},
	{LeaseEdit, recipe{weight: 5, namespaced: true, choices: len(edits)}},
	{KubeconfigSwap, recipe{weight: 3, least: 2 * second, longest: 5 * second, choices: 2}},
	{NamespaceDelete, recipe{weight: 3, least: second / 10, longest: second, after: 7 * second, namespaced: true}},
	{Priority, recipe{weight: 4, choices: 2}},
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
	for _, r := range recipes {
		total += r.weight
	}
	ticket, i := random.IntN(total), 0
	for ; ticket >= recipes[i].weight; i++ {
		ticket -= recipes[i].weight
	}
	r := recipes[i]
	f := Fault{Kind: r.Kind, At: time.Duration(random.Int64N(int64(window/grid))) * grid, For: r.least}
	if span := int64((r.longest - r.least) / grid); span > 0 {
		f.For += time.Duration(random.Int64N(span+1)) * grid
	}
	if r.choices > 0 {
		f.Choice = random.IntN(r.choices)
	}
	f.Target = target(random, r.Kind, r.recipe)
	switch heads := random.IntN(2) == 0; {
	case f.onHub():
	case heads, r.leading: // of what leads nothing there is less to see
		f.Target = Leader
		f.Namespace = allNamespaces()[random.IntN(len(allNamespaces()))]
	case r.namespaced:
		in := namespacesOf(f.Target)
		f.Namespace = in[random.IntN(len(in))]
	}
	return f
}

func (f Fault) onHub() bool { return f.Target == hubServer || slices.Contains(hubReplicas, f.Target) }

func target(random *rand.Rand, kind Kind, r recipe) string {
	if kind == HubPause || kind == HubKill {
		return hubReplicas[random.IntN(len(hubReplicas))]
	}
	from := memberNames()
	if r.hub {
		from = append(from, hubServer)
	}
	return from[random.IntN(len(from))]
}

// locks name what a fault needs for itself while it lasts. They are also the rows of a timeline. A fault at Leader
// waits if another fault has the member that leads.
func (f Fault) locks() []string {
	server, link, reader := f.Target+" server", f.Target+" link", f.Target+" reader"
	switch f.Kind {
	case HubPause, HubKill:
		return []string{f.Target}
	case ReaderPause, ReaderKill:
		return []string{reader}
	case Sleeper:
		return []string{link, reader}
	case LinkHalfOpen:
		return []string{link, server}
	case KubeconfigSwap:
		return []string{f.Target + " kubeconfig", server, hubServer + " server"}
	case Priority:
		return []string{f.Target + " label", hubServer + " server"}
	case LinkCutTo, LinkCutFrom, LinkBlackHole, LinkDelay, LinkReset, LateRenewal:
		return []string{link}
	}
	return []string{server}
}

// collide reports whether two faults need the same lock at the same time.
func collide(a, b Fault) bool {
	if a.At > b.At {
		a, b = b, a
	}
	if b.At >= a.At+a.For+after(a.Kind)+second/2 {
		return false
	}
	return slices.ContainsFunc(a.locks(), func(l string) bool { return slices.Contains(b.locks(), l) })
}

func after(k Kind) time.Duration {
	for _, r := range recipes {
		if r.Kind == k {
			return r.after
		}
	}
	return 0
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

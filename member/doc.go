// Package member lets a controller act in exactly one cluster at a time.
//
// A hub elects one leader cluster per namespace and writes a Lease that says so
// into every member cluster. This package watches those Leases in its own cluster,
// applies the reader's rule to them (see package api/lease) and answers one
// question: may I act in this namespace, now, and until when?
//
//	m, err := member.New(cfg, member.Options{})
//	...
//	go m.Start(ctx)
//	...
//	if term, ok := m.Term("shop"); ok { // do I lead? tens of nanoseconds
//		fmt.Println("leading in epoch", term.Epoch())
//	}
//
// Informers and caches run in every cluster, so that a promotion finds them warm;
// only acting is gated. Programs built on controller-runtime gate a controller with
// one line, see package member/gate; others use [Member.Lead]. Package
// member/resourcelock gates the election between replicas, and package
// member/command programs that know nothing of Leases. Package member/membertest
// has a fake for tests.
//
// # Terms
//
// A [Term] is one unbroken leadership of one namespace. It carries the epoch, the
// fencing token: it rises from term to term in whichever cluster leads, so an
// external system that remembers the highest epoch it has seen, and refuses lower
// ones, refuses the work of a term that is over. Work done under
// [Member.Context] is cancelled when the term ends, for whatever reason: another
// cluster was chosen, the Lease was deleted, or the hub fell silent and the term
// ran out by either clock. The context lives on as the term is renewed.
//
// # What it says
//
// A Member is never silent; [Options.Logger] gets, at Info, who leads a namespace and every change of that, and why a
// term ended. What is wrong is told at once, with what to do: Leases that cannot be listed, every minute while it lasts,
// in one line for all namespaces that fail alike; a registration that cannot be confirmed, likewise; a Lease that is not
// believed, and why; a clock that is off; a namespace without a Lease; options that contradict the
// policy; a Member that nobody has started. What comes and goes is told five times a minute at most.
// [Member.State] tells the same of one namespace, and so does the
// [NotLeaderError] of [Member.Context]. For a namespace that is not watched that returns [ErrNotWatched], for a Member that
// has stopped [ErrStopped]. What a program does wrong is [ErrMisused].
//
// # Clocks
//
// The policy's maxClockSkewMilliseconds travels in every Lease, sealed by the hub, and a Member refuses a Lease whose
// renewTime is further ahead of its clock than that, or than [Options.MaxClockSkew], whichever is less. A Member knows no
// seal. So an edit of what the Lease says can make it stricter, or as lenient as the option, and no more than that, until
// the hub puts it right. A Lease that does not say, because it is of an older hub or somebody has edited it, leaves the
// option alone, and the Member says so.
//
// A Lease that no hub can have written, without a renewTime or with a duration that no policy allows, permits nothing.
//
// A clock that is ahead makes Leases arrive old. Where they arrive so old that a term runs out before it is renewed,
// the next one begins no earlier than a duration after that one began: it leads now and then instead of flapping with
// each renewal, and says what is wrong.
//
// # What is promised, and what is not
//
// As long as every clock stays within half of the policy's maxClockSkewMilliseconds of true time,
// no two clusters hold a term of one namespace at one instant. Between a check and
// the act that follows it a process can still be paused, for minutes, and act
// when it wakes up. Contexts end at most 100 ms after such a pause, but what was
// already on its way is not called back. [CapWrites] narrows that gap for requests
// to Kubernetes, the epoch closes it for systems that check it.
//
// # A connection that died without a word
//
// A hub renews a term before half of its duration has passed. When less than a third is left, news are missing: a
// [Member] then lists the Leases anew, on another connection, and watches on from there. It does so once for each
// watch and each renewal that is missing, and ever less often while the answers show that the hub is silent. So a
// connection that dies costs no term, as long as a new one can be made. Where nothing is led, pings notice it
// within a third of the shortest duration seen and a second. The connections are the Member's own, unless the
// configuration has a Transport: then another connection and the pings are up to that. [Member.Healthz] fails when
// a term ran out because nothing was heard, and within the duration of a term where nothing is led. It belongs to a
// readiness probe: a restart connects no sooner, and would hit every Pod while an API server is silent.
//
// # Handover without a gap
//
// When the hub moves a namespace on purpose, it takes the term back, and then has to wait until the
// last Lease it sent has run out, unless it hears that nobody acts any more. With [Options.Registration]
// a Member says so:
//
//	cfg.Wrap(member.CapWrites) // before any client is made
//	client, err := rest.HTTPClientFor(cfg)
//	...
//	clients, err := kubernetes.NewForConfigAndClient(cfg, client)
//	...
//	m, err := member.New(cfg, member.Options{Registration: &member.Registration{Client: client}})
//
// It keeps a Lease of its own in the Pod's namespace, one for each start of the process. When a
// term is revoked it cancels the contexts, waits until all work of the term has
// finished, and writes there that the term is released. So the program must say when its
// work has finished, see [Registration]. In exchange a Member that cannot confirm its registration
// does not lead.
//
// # Replicas in one cluster
//
// This package elects clusters, not processes: all replicas of a controller in the
// leading cluster hold the term. Which of them acts is decided by the usual local
// election (controller-runtime's LeaderElection, client-go's leaderelection), which
// stays as it is. A [Member] runs in every replica, elected or not, so that the one
// that wins knows at once what it may do.
package member

// Package member lets a controller act in exactly one cluster at a time.
//
// A hub elects one leader cluster per namespace and writes a Lease that names it into every member cluster. This
// package watches those Leases in its own cluster and applies the reader's rule to them (see package api/lease). It
// answers one question: may I act in this namespace, now, and until when?
//
//	m, err := member.New(cfg, member.Options{})
//	...
//	go m.Start(ctx)
//	...
//	if term, ok := m.Term("shop"); ok { // do I lead? tens of nanoseconds
//		fmt.Println("leading in epoch", term.Epoch())
//	}
//
// Informers and caches run in every cluster, so that a promotion finds them warm. Only acting is gated. Programs built
// on controller-runtime gate a controller with one line, see package member/gate. Others use [Member.Lead]. Package
// member/resourcelock gates the election between replicas. Package member/command gates programs that know nothing of
// Leases. Package member/membertest has a fake for tests.
//
// # Terms
//
// A [Term] is one unbroken leadership of one namespace. It carries the epoch, the fencing token, which rises from term
// to term in whichever cluster leads. So an external system that remembers the highest epoch it has seen, and refuses
// lower ones, refuses the work of a term that is over.
//
// Work done under [Member.Context] is cancelled when the term ends for any reason. Another cluster was chosen, the
// Lease was deleted, or the hub was silent and the term ran out by either clock. The context survives renewals of the
// term.
//
// # What it logs
//
// A Member logs to [Options.Logger]. At Info it logs who leads a namespace, every change of the leader, and why a term
// ended. It logs each of these problems when it begins or its kind changes, and which rights it lacks:
//
//   - Leases that cannot be followed, for each watch, and again every minute while it lasts;
//   - a registration that cannot be confirmed: likewise every minute;
//   - a Lease that is not believed, and why;
//   - a clock that is off;
//   - a namespace without a Lease;
//   - a Member that was not started.
//
// [Member.State] returns the same for one namespace, and so does the [NotLeaderError] of [Member.Context]. For a
// namespace that is not watched that method returns [ErrNotWatched], and for a stopped Member [ErrStopped]. A mistake
// of the program is [ErrMisused].
//
// # Clocks
//
// The policy's maxClockSkewMilliseconds travels in every Lease, sealed by the hub. A Member refuses a Lease whose
// renewTime is further ahead of its clock than that, or than [Options.MaxClockSkew], whichever is less. A Member cannot
// verify the seal. So until the hub reverts it, an edit of the Lease can make the bound stricter, or as lenient as the
// option but no more. If a Lease lacks the annotation, because it was edited, the option alone counts.
//
// A Lease that no hub can have written, without a renewTime or with a duration that no policy allows, permits nothing.
//
// A clock that is ahead makes Leases arrive old. They may arrive so old that a term runs out before it is renewed, and
// the next renewal begins another one. The Member logs the cause.
//
// # What is promised, and what is not
//
// While every clock stays within half of the policy's maxClockSkewMilliseconds of true time, no two clusters hold a
// term of one namespace at one instant. A process can still be paused for minutes between a check and the act that
// follows, and act when it wakes up. Contexts end at most 100 ms after such a pause, but requests in flight are not
// called back. [CapWrites] narrows that gap for requests to Kubernetes. The epoch closes it for systems that check it.
//
// # A connection that died silently
//
// Pings notice a dead connection within a third of the shortest duration that a Lease has shown, or within 0.5 s if
// that is longer. The Member then lists the Leases on another connection, and watches on from there, within another
// second. So a dead connection costs no term of 3 s or more, as long as a new one can be made. The connections are the
// Member's own, unless the configuration has a Transport. In that case the Transport decides about pings.
//
// A hub renews a term before half of its duration has passed. If a watch shows nothing for two thirds of the duration
// of a term that is led, the Member lists the Leases as well. The list counts as a sign of life, so a silent hub costs
// few lists. A watch that shows nothing otherwise is followed by a list after at most half of [Options.StaleAfter].
//
// [Member.Healthz] fails when a watch has ended, and lists have had no answer for a third of the shortest duration. It
// belongs to a readiness probe. A restart connects no sooner, and would hit every Pod while an API server is silent.
//
// # Handover without a gap
//
// When the hub moves a namespace on purpose, it revokes the term. Then it must wait until the last Lease it sent has
// run out, unless all readers have released the term. With [Options.Registration] a Member does so:
//
//	cfg.Wrap(member.CapWrites) // before any client is made
//	client, err := rest.HTTPClientFor(cfg)
//	...
//	clients, err := kubernetes.NewForConfigAndClient(cfg, client)
//	...
//	m, err := member.New(cfg, member.Options{Registration: &member.Registration{Client: client}})
//
// It keeps its own Lease in the Pod's namespace, one for each start of the process. When a term is revoked it cancels
// the contexts and waits until all work of the term has finished. Then it writes into that Lease that the term is
// released. So the program must report when its work has finished, see [Registration]. In exchange, a Member that
// cannot confirm its registration does not lead.
//
// # Replicas in one cluster
//
// This package elects clusters, not processes: all replicas of a controller in the leading cluster hold the term. The
// usual local election (controller-runtime's LeaderElection, client-go's leaderelection) decides which of them acts,
// and stays as it is. A [Member] runs in every replica, elected or not, so that the winner knows at once what it may
// do.
package member

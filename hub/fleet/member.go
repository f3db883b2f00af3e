package fleet

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/act"
	"github.com/leasecast/leasecast/hub/health"
)

// Key names a member: its fleet, which is the hub namespace of its Cluster, and the name of the Cluster.
type Key struct {
	Fleet string
	Name  string
}

// String is `<fleet>/<name>`.
func (k Key) String() string { return k.Fleet + "/" + k.Name }

// ClusterName is the name under which the member is engaged.
func (k Key) ClusterName() multicluster.ClusterName { return multicluster.ClusterName(k.String()) }

// Identity is the name of the member in holderIdentity.
func (k Key) Identity() string { return lease.Identity(k.Name, k.Fleet) }

// ParseKey is the inverse of [Key.ClusterName].
func ParseKey(name multicluster.ClusterName) (Key, error) {
	fleet, cluster, ok := strings.Cut(name.String(), "/")
	if !ok || fleet == "" || cluster == "" || strings.Contains(cluster, "/") {
		return Key{}, fmt.Errorf("cluster name %q is not <fleet>/<cluster>", name)
	}
	return Key{Fleet: fleet, Name: cluster}, nil
}

// Problem is a reason and its explanation for people. It holds no secrets.
type Problem struct {
	Reason  reason.Reason
	Message string
}

// Member is what was known about one Cluster when the fleet was asked. The fields are a snapshot; the methods
// work on the living member. Do not change what Labels holds.
type Member struct {
	Key

	// UID is that of the member's kube-system namespace: the one pinned on the Cluster, or else the one read
	// from it. It is empty before first contact.
	UID string
	// Pinned: the annotation of the Cluster holds the UID. Write nothing into a member before that.
	Pinned bool

	// Priority is the value of the label, if PriorityReason is empty.
	Priority int32
	// PriorityReason is NoPriority or InvalidPriority if the label holds no priority.
	PriorityReason reason.Reason

	// Connected: the member's caches are full, so that Cluster is not nil, and it is engaged on the elected
	// replica. It stays so while the member cannot be reached.
	Connected bool
	// Problem is the gravest thing that is wrong, or empty. NameTooLong, WrongCluster, DuplicateCluster,
	// Deleting and Gone exclude the member from leading. InvalidKubeconfig and NoKubeconfig are a warning
	// while the last good kubeconfig works, which Connected and Health show. NeverReached, Unreachable and
	// Forbidden say why there is no connection yet, or how the last probe failed.
	Problem Problem
	// Unreachable: the last read or write got no answer. A Problem of that reason may be about a newer kubeconfig, or
	// about the hub's role there.
	Unreachable bool

	// Deleting: the Cluster has a deletion timestamp.
	Deleting bool
	// Gone: the Cluster does not exist any more. Only the connection is kept.
	Gone bool
	// Paused: the Cluster is paused, by its spec or by annotation.
	Paused bool
	// Drain is whether, and until when, an operator drains the Cluster.
	Drain act.Act
	// Fenced is the UID of the cluster that an operator has declared to be off, or empty.
	Fenced string
	// DeleteForMove: clusterctl move is deleting the Cluster here, because it is in another hub now. It stays
	// true when the Cluster is gone.
	DeleteForMove bool

	// Expires is when the client certificate in use expires, or zero without one.
	Expires time.Time
	// Labels are those of the Cluster.
	Labels map[string]string

	live *member
}

// IsFenced reports whether an operator has declared that this very cluster is off.
func (m Member) IsFenced() bool { return m.Fenced != "" && m.Fenced == m.UID }

// Cluster is the member's cached client, as engaged with the manager. It caches Namespaces and the Leases
// that are labelled as managed, and refuses other kinds. It is nil unless Connected. Only their context, and
// the wait for the first byte of an answer, bound its requests.
func (m Member) Cluster() cluster.Cluster { return m.live.get().cluster }

// Writer is a client on the member's second connection. Only renewals and probes use it, so that they do not
// queue behind lists and watches. It reads without a cache, has no rate limit, and knows every kind that
// client-go knows. Bound each request with a context. It may be used while not Connected; then requests fail.
func (m Member) Writer() kubernetes.Interface { return m.live.writer }

// Tenants is for clients of what tenants of the member write, on the connection of the caches. What comes has a pace of
// its own: see Swappable.Tenants in package transport. An error may wrap transport.ErrTooLarge.
func (m Member) Tenants() *rest.Config { return m.live.requests.Config(m.live.requests.Tenants()) }

// Health judges the member now.
func (m Member) Health(th health.Thresholds) health.Verdict { return m.live.verdict(th) }

// LastAnswer is when the latest answer of the member arrived, or zero. One that may come from a gateway does not count.
func (m Member) LastAnswer() (last lease.Reading) {
	if at := m.live.lastAnswer.Load(); at != nil {
		last = *at
	}
	return last
}

// OmitsReaders reports whether the member shows more registrations of readers than are kept.
func (m Member) OmitsReaders() bool { return m.live != nil && m.live.omitsReaders.Load() }

// Observe records the outcome of a request that the caller has sent to the member itself.
func (m Member) Observe(o health.Observation) { m.live.observe(o) }

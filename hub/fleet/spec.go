package fleet

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/act"
	"github.com/leasecast/leasecast/hub/fleet/secrets"
	"github.com/leasecast/leasecast/hub/seal"
)

const (
	kubeconfigSuffix = secrets.KubeconfigSuffix
	// deleteForMove is set by clusterctl move on an object that it is about to delete.
	deleteForMove = "clusterctl.cluster.x-k8s.io/delete-for-move"
)

// spec is what the hub's objects say about one member.
type spec struct {
	// UID and created are those of the Cluster object.
	uid     types.UID
	created time.Time
	// pin is the UID of the member's kube-system as pinned on the Cluster.
	pin string
	// pinProved: the hub has pinned it itself.
	pinProved bool
	labels    map[string]string

	drain  act.Act
	fenced string

	deleting, paused, moved, gone bool
	// goneAt is the boot reading at which the Cluster was found to be gone.
	goneAt time.Duration

	// kubeconfig is the content of the Secret. noKubeconfig says why there is none, and refused why it was not kept.
	kubeconfig, noKubeconfig, refused string
}

// readSpec reads a Cluster. key is that of the fleet's seal, if it is known.
func readSpec(c *clusterv1.Cluster, key seal.Key) spec {
	_, moved := c.Annotations[deleteForMove]
	s := spec{
		uid:      c.UID,
		created:  c.CreationTimestamp.Time,
		pin:      c.Annotations[v1alpha1.ClusterUIDAnnotation],
		labels:   Selectable(c.Labels),
		drain:    act.Drain(c.Annotations),
		fenced:   c.Annotations[v1alpha1.FencedAnnotation],
		deleting: c.DeletionTimestamp != nil,
		paused:   IsPaused(c),
		moved:    moved,
	}
	s.pinProved = s.pin != "" && seal.IsPin(key, c.Namespace, c.Name, s.pin, c.Annotations[v1alpha1.PinProofAnnotation])
	return s
}

// IsPaused reports whether a Cluster is paused, by its spec or by annotation.
func IsPaused(c *clusterv1.Cluster) bool {
	_, paused := c.Annotations[clusterv1.PausedAnnotation]
	return paused || ptr.Deref(c.Spec.Paused, false)
}

func (s spec) equal(o spec) bool { return reflect.DeepEqual(s, o) }

// takesPart reports whether the Cluster is there and labelled.
func (s spec) takesPart() bool {
	_, labelled := s.labels[v1alpha1.PriorityLabel]
	return labelled && !s.gone
}

// keeps reports whether the connection is wanted, or something of ours may be left.
func (s spec) keeps() bool { return s.gone || s.takesPart() || s.pin != "" }

// priority reads the label: a decimal integer of 32 bits. Leading zeros are allowed, because "007" can mean
// nothing but 7. A sign, an exponent or spaces are not.
func (s spec) priority() (int32, reason.Reason) {
	value, labelled := s.labels[v1alpha1.PriorityLabel]
	if !labelled {
		return 0, reason.NoPriority
	}
	if strings.ContainsAny(value, "+-_") {
		return 0, reason.InvalidPriority
	}
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil {
		return 0, reason.InvalidPriority
	}
	return int32(n), ""
}

// nameProblem says why a name fits no Lease or no Secret, or returns "".
func nameProblem(k Key) string {
	const most = validation.DNS1123SubdomainMaxLength
	if n := len(k.Identity()); n > most {
		return fmt.Sprintf("%s has %d characters: holderIdentity takes at most %d", k.Identity(), n, most)
	}
	if n := len(k.Name) + len(kubeconfigSuffix); n > most {
		return fmt.Sprintf("%s%s has %d characters: the name of a Secret takes at most %d", k.Name, kubeconfigSuffix, n, most)
	}
	return ""
}

package controller

import (
	"context"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/seal"
)

const (
	simFleet = "fleet"
	simHub   = "hub-uid"
	// decideCall bounds the calls of one decision: less than decideTimeout, because one
	// decision makes several.
	decideCall = 5 * time.Second
)

var (
	recordResource = schema.GroupResource{Group: "leasecast.dev", Resource: "namespaceleaders"}
	// What is missing most often.
	errNoRecord = apierrors.NewNotFound(recordResource, "")
	errNoSpace  = apierrors.NewNotFound(corev1.Resource("namespaces"), "")
)

// hubServer is the management cluster: the hub's election (a leaseServer), records,
// policies, Clusters and the seal.
type hubServer struct {
	leaseServer
	records  map[string]*v1alpha1.NamespaceLeader
	history  map[string][]recordThen
	policies []*v1alpha1.LeadershipPolicy // oldest first
	clusters map[string]simCluster
	edits    int // of policies and Clusters
	writes   int // of records
	secret   *corev1.Secret
	sealed   seal.Bounds // in the secret
}

type recordThen struct {
	at     time.Duration
	record *v1alpha1.NamespaceLeader
}

// simCluster is what a Cluster says.
type simCluster struct {
	priority int32
	label    bool
	paused   bool
	drained  time.Duration // until then
	fenced   string        // the cluster of this UID is off
	// gone: it does not exist. generation is that of the cluster behind it.
	gone       bool
	generation int
}

// putRecord stores a record, which is never changed from then on, or nil for none.
func (h *hubServer) putRecord(name string, o *v1alpha1.NamespaceLeader) *v1alpha1.NamespaceLeader {
	h.version++
	h.writes++
	h.noteHandover(h.records[name], o)
	version := h.version
	if o != nil {
		o = new(*o)
		o.ResourceVersion, h.records[name] = strconv.FormatInt(version, 10), o
	} else {
		delete(h.records, name)
	}
	h.history[name] = append(h.history[name], recordThen{h.w.now, o})
	shown := &v1alpha1.NamespaceLeader{ObjectMeta: metav1.ObjectMeta{
		Namespace: simFleet, Name: name, ResourceVersion: strconv.FormatInt(version, 10),
	}}
	for _, r := range h.w.replicas {
		r.after(h.w.lag()+r.cacheLag, func() { r.showRecord(shown, version, o == nil) })
	}
	switch {
	case h.w.trace == nil:
	case o == nil:
		h.w.say(h.name, "record %s is deleted", name)
	default:
		s := o.Spec
		h.w.say(h.name, "record %s: %s %s epoch %d %s next=%s d=%ds lease=%s %s %+v", name, s.State, s.Leader, s.Epoch,
			s.Reason, s.Next, s.LeaseDurationSeconds, s.LeaseName, o.Status.Message, o.Status.Candidates)
	}
	return o
}

// hubClient is a replica's client: cached reads are late, live ones and writes go over
// the network.
type hubClient struct {
	client.Client
	r *replica
}

func (c hubClient) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	for _, then := range slices.Backward(c.r.w.hub.history[key.Name]) {
		if then.at > c.r.w.now-c.r.cacheLag {
			continue
		}
		if then.record == nil {
			break
		}
		*o.(*v1alpha1.NamespaceLeader) = *then.record // the reader must not change what it refers to
		return nil
	}
	return errNoRecord
}

func (c hubClient) List(_ context.Context, o client.ObjectList, _ ...client.ListOption) error {
	o.(*v1alpha1.LeadershipPolicyList).Items = c.r.policies // the reader must not change them
	return nil
}

func (c hubClient) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	h, record := c.r.w.hub, o.(*v1alpha1.NamespaceLeader)
	h.w.oracle.decides(c.r, record.Name)
	out, err := call(c.r.proc, &h.machine, decideCall, func() (*v1alpha1.NamespaceLeader, error) {
		if h.records[record.Name] != nil {
			return nil, apierrors.NewAlreadyExists(recordResource, record.Name)
		}
		h.uids++
		made := *record
		made.UID, made.Generation, made.Status = types.UID("r"+strconv.Itoa(h.uids)), 1, v1alpha1.NamespaceLeaderStatus{}
		h.w.oracle.wrote(h.w, made.Name, nil, &made)
		return h.putRecord(made.Name, &made), nil
	})
	if err == nil {
		*record = *out
	}
	return err
}

// Update stores the seal, or a record without its status.
func (c hubClient) Update(_ context.Context, o client.Object, _ ...client.UpdateOption) error {
	h := c.r.w.hub
	if record, ok := o.(*v1alpha1.NamespaceLeader); ok {
		return h.update(c.r, record, func(stored, sent *v1alpha1.NamespaceLeader) {
			stored.ObjectMeta, stored.Spec = sent.ObjectMeta, sent.Spec
			stored.Generation++
		})
	}
	secret := o.(*corev1.Secret)
	return invoke(c.r.proc, &h.machine, decideCall, func() error {
		if secret.ResourceVersion != h.secret.ResourceVersion {
			return apierrors.NewConflict(corev1.Resource("secrets"), secret.Name, errRefused)
		}
		h.version++
		h.secret, h.sealed = secret.DeepCopy(), sealed(secret)
		h.secret.ResourceVersion = strconv.FormatInt(h.version, 10)
		h.markChanged(seal.MarkOf(h.secret))
		return nil
	})
}

// Patch removes annotations from a record.
func (c hubClient) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
	return c.r.w.hub.update(c.r, o.(*v1alpha1.NamespaceLeader), func(stored, sent *v1alpha1.NamespaceLeader) {
		stored.Annotations = sent.Annotations
	})
}

func (c hubClient) Delete(_ context.Context, o client.Object, opts ...client.DeleteOption) error {
	h := c.r.w.hub
	options := (&client.DeleteOptions{}).ApplyOptions(opts)
	return invoke(c.r.proc, &h.machine, decideCall, func() error {
		switch old := h.records[o.GetName()]; {
		case old == nil:
			return errNoRecord
		case !isMet(options.Preconditions, old):
			return apierrors.NewConflict(recordResource, o.GetName(), errRefused)
		}
		h.putRecord(o.GetName(), nil)
		return nil
	})
}

// isMet reports whether an object is the one that the preconditions of its deletion name.
func isMet(pre *metav1.Preconditions, o client.Object) bool {
	return pre == nil || (pre.UID == nil || *pre.UID == o.GetUID()) &&
		(pre.ResourceVersion == nil || *pre.ResourceVersion == o.GetResourceVersion())
}

func (c hubClient) Status() client.SubResourceWriter { return statusClient{r: c.r} }

type statusClient struct {
	client.SubResourceWriter
	r *replica
}

func (c statusClient) Update(_ context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	return c.r.w.hub.update(c.r, o.(*v1alpha1.NamespaceLeader), func(stored, sent *v1alpha1.NamespaceLeader) {
		stored.Status = sent.Status
	})
}

// update changes a record by compare-and-swap, and answers with what is stored.
func (h *hubServer) update(
	r *replica, o *v1alpha1.NamespaceLeader, change func(stored, sent *v1alpha1.NamespaceLeader),
) error {
	sent := new(*o) // what it refers to is never changed
	h.w.oracle.decides(r, sent.Name)
	out, err := call(r.proc, &h.machine, decideCall, func() (*v1alpha1.NamespaceLeader, error) {
		old := h.records[sent.Name]
		switch {
		case old == nil:
			return nil, errNoRecord
		case sent.UID != old.UID, sent.ResourceVersion != "" && sent.ResourceVersion != old.ResourceVersion:
			return nil, apierrors.NewConflict(recordResource, sent.Name, errRefused)
		}
		stored := *old
		change(&stored, sent)
		h.w.oracle.wrote(h.w, sent.Name, old, &stored)
		return h.putRecord(sent.Name, &stored), nil
	})
	if err == nil {
		*o = *out
	}
	return err
}

// liveReader reads from the hub's API server itself.
type liveReader struct {
	client.Reader
	r *replica
}

func (c liveReader) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	h := c.r.w.hub
	if secret, ok := o.(*corev1.Secret); ok {
		found, err := call(c.r.proc, &h.machine, decideCall, func() (*corev1.Secret, error) { return h.secret, nil })
		if err == nil {
			found.DeepCopyInto(secret)
		}
		return err
	}
	found, err := call(c.r.proc, &h.machine, decideCall, func() (*v1alpha1.NamespaceLeader, error) {
		if r := h.records[key.Name]; r != nil {
			return r, nil
		}
		return nil, errNoRecord
	})
	if err == nil {
		*o.(*v1alpha1.NamespaceLeader) = *found
	}
	return err
}

// silent is an event recorder that nobody reads.
type silent struct{}

func (silent) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

// manual reports whether people fail over by hand.
func (w *world) manual() bool { return w.seed%11 == 4 }

// newPolicy is a policy that claims the namespaces.
func (w *world) newPolicy(
	name string, made int, namespaces []string, seconds int32, leaseName string,
) *v1alpha1.LeadershipPolicy {
	p := &v1alpha1.LeadershipPolicy{}
	w.identities++
	p.Namespace, p.Name, p.Generation, p.UID = simFleet, name, int64(made), types.UID("p"+strconv.Itoa(w.identities))
	p.CreationTimestamp = metav1.NewTime(epoch0.Add(time.Duration(made) * time.Second))
	p.Spec.Namespaces.Names = namespaces
	p.Spec.LeaseName = leaseName
	p.Spec.InitialDelaySeconds = ptr.To(int32(w.seed % 3))
	p.Spec.MaxConcurrentMoves = int32(w.seed % 2) // of none counts as the default
	if w.seed%3 == 1 && !w.steady {
		p.Spec.Failback, p.Spec.FailbackAfterSeconds = v1alpha1.Automatic, 4
	}
	if w.seed%5 == 1 {
		p.Spec.Placement = v1alpha1.PlacementSpread
	}
	if w.seed%4 == 2 {
		p.Spec.Requires = &v1alpha1.Requires{Reader: true, UnhealthyAfterSeconds: 2}
	}
	if w.manual() {
		p.Spec.Failover = v1alpha1.Manual
	}
	if w.acknowledged {
		p.Spec.Handover = v1alpha1.HandoverRegisteredReaders
	}
	w.fence(p)
	p.Spec.Timings = v1alpha1.Timings{
		LeaseDurationMilliseconds:  1000 * seconds,
		RenewIntervalMilliseconds:  int32(w.timings.Renew / time.Millisecond),
		RequestTimeoutMilliseconds: int32(w.timings.Timeout / time.Millisecond),
		MaxClockSkewMilliseconds:   int32(w.timings.Skew / time.Millisecond),
	}
	return p
}

package controller

import (
	"context"
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

var recordResource = schema.GroupResource{Group: "leasecast.dev", Resource: "namespaceleaders"}

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
	// gone: it does not exist. generation is that of the cluster behind it.
	gone       bool
	generation int
}

// putRecord stores a record, which is never changed from then on, or nil for none.
func (h *hubServer) putRecord(name string, o *v1alpha1.NamespaceLeader) *v1alpha1.NamespaceLeader {
	h.version++
	h.writes++
	h.noteHandover(h.records[name], o)
	if o != nil {
		stored := *o
		stored.ResourceVersion = strconv.FormatInt(h.version, 10)
		o = &stored
		h.records[name] = o
	} else {
		delete(h.records, name)
	}
	h.history[name] = append(h.history[name], recordThen{h.w.now, o})
	version := h.version
	for _, r := range h.w.replicas {
		r.after(h.w.lag()+r.cacheLag, func() { r.showRecord(name, version, o == nil) })
	}
	if h.w.trace != nil && o != nil {
		s := o.Spec
		h.w.say(h.name, "record %s: %s %s epoch %d %s next=%s d=%ds lease=%s %s", name, s.State, s.Leader, s.Epoch, s.Reason,
			s.Next, s.LeaseDurationSeconds, s.LeaseName, o.Status.Message)
		for _, c := range o.Status.Candidates {
			if !c.Eligible {
				h.w.say(h.name, "  %s: %s", c.Name, c.Reason)
			}
		}
	} else if h.w.trace != nil {
		h.w.say(h.name, "record %s is deleted", name)
	}
	return o
}

// hubClient is a replica's client: cached reads are late, live ones and writes go over
// the network.
type hubClient struct {
	client.Client
	r *replica
}

func (c hubClient) server() *hubServer { return c.r.w.hub }

func (c hubClient) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	record, ok := o.(*v1alpha1.NamespaceLeader)
	if !ok {
		panic("the simulation has no cache for this")
	}
	past := c.server().history[key.Name]
	for i := len(past) - 1; i >= 0; i-- {
		if past[i].at > c.r.w.now-c.r.cacheLag {
			continue
		}
		if past[i].record == nil {
			break
		}
		past[i].record.DeepCopyInto(record)
		return nil
	}
	return apierrors.NewNotFound(recordResource, key.Name)
}

func (c hubClient) List(_ context.Context, o client.ObjectList, _ ...client.ListOption) error {
	list, ok := o.(*v1alpha1.LeadershipPolicyList)
	if !ok {
		panic("the simulation has no cache for this")
	}
	for _, p := range c.r.policies {
		list.Items = append(list.Items, *p)
	}
	return nil
}

func (c hubClient) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	h := c.server()
	switch o := o.(type) {
	case *v1alpha1.NamespaceLeader:
		h.w.oracle.decides(c.r, o.Name)
		out, err := call(c.r.proc, &h.machine, decideCall, func() (*v1alpha1.NamespaceLeader, error) {
			if h.records[o.Name] != nil {
				return nil, apierrors.NewAlreadyExists(recordResource, o.Name)
			}
			h.uids++
			made := o.DeepCopy()
			made.UID, made.Generation, made.Status = types.UID("r"+strconv.Itoa(h.uids)), 1, v1alpha1.NamespaceLeaderStatus{}
			h.w.oracle.wrote(h.w, o.Name, nil, made)
			return h.putRecord(o.Name, made), nil
		})
		if err == nil {
			out.DeepCopyInto(o)
		}
		return err
	default:
		panic("the simulation cannot create this")
	}
}

// Update stores the seal, or a record without its status.
func (c hubClient) Update(_ context.Context, o client.Object, _ ...client.UpdateOption) error {
	h := c.server()
	if record, ok := o.(*v1alpha1.NamespaceLeader); ok {
		return h.update(c.r, record, func(stored, sent *v1alpha1.NamespaceLeader) {
			stored.ObjectMeta, stored.Spec = sent.ObjectMeta, sent.Spec
			stored.Generation++
		})
	}
	_, err := call(c.r.proc, &h.machine, decideCall, func() (struct{}, error) {
		switch o := o.(type) {
		case *corev1.Secret:
			if o.ResourceVersion != h.secret.ResourceVersion {
				return struct{}{}, apierrors.NewConflict(corev1.Resource("secrets"), o.Name, errRefused)
			}
			h.version++
			stored := o.DeepCopy()
			stored.ResourceVersion = strconv.FormatInt(h.version, 10)
			h.secret = stored
			h.markChanged(seal.MarkOf(stored))
		default:
			panic("the simulation cannot update this")
		}
		return struct{}{}, nil
	})
	return err
}

func (c hubClient) Delete(_ context.Context, o client.Object, opts ...client.DeleteOption) error {
	h := c.server()
	options := (&client.DeleteOptions{}).ApplyOptions(opts)
	_, err := call(c.r.proc, &h.machine, decideCall, func() (struct{}, error) {
		old := h.records[o.GetName()]
		switch pre := options.Preconditions; {
		case old == nil:
			return struct{}{}, apierrors.NewNotFound(recordResource, o.GetName())
		case pre != nil && (pre.UID != nil && *pre.UID != old.UID ||
			pre.ResourceVersion != nil && *pre.ResourceVersion != old.ResourceVersion):
			return struct{}{}, apierrors.NewConflict(recordResource, o.GetName(), errRefused)
		}
		h.putRecord(o.GetName(), nil)
		return struct{}{}, nil
	})
	return err
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
	sent := o.DeepCopy()
	h.w.oracle.decides(r, sent.Name)
	out, err := call(r.proc, &h.machine, decideCall, func() (*v1alpha1.NamespaceLeader, error) {
		old := h.records[sent.Name]
		switch {
		case old == nil:
			return nil, apierrors.NewNotFound(recordResource, sent.Name)
		case sent.UID != old.UID, sent.ResourceVersion != "" && sent.ResourceVersion != old.ResourceVersion:
			return nil, apierrors.NewConflict(recordResource, sent.Name, errRefused)
		}
		stored := *old
		change(&stored, sent)
		h.w.oracle.wrote(h.w, sent.Name, old, &stored)
		h.w.oracle.plans(r, sent.Name, old, &stored)
		return h.putRecord(sent.Name, &stored), nil
	})
	if err == nil {
		out.DeepCopyInto(o)
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
	found, err := call(c.r.proc, &h.machine, decideCall, func() (client.Object, error) {
		switch o.(type) {
		case *v1alpha1.NamespaceLeader:
			if r := h.records[key.Name]; r != nil {
				return r, nil
			}
		case *corev1.Secret:
			if key.Name == seal.SecretName {
				return h.secret, nil
			}
		}
		return nil, apierrors.NewNotFound(recordResource, key.Name)
	})
	if err != nil {
		return err
	}
	switch found := found.(type) {
	case *v1alpha1.NamespaceLeader:
		found.DeepCopyInto(o.(*v1alpha1.NamespaceLeader))
	case *corev1.Secret:
		found.DeepCopyInto(o.(*corev1.Secret))
	}
	return nil
}

// silent is an event recorder that nobody reads.
type silent struct{}

func (silent) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

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

package publish

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
)

// request is one that a member got.
type request struct {
	verb   string
	key    types.NamespacedName
	at     time.Time
	lease  lease.Content // of a create or update
	within *int64        // of a list
}

// link decides what becomes of a request. It may block until the context ends.
type link func(context.Context, request) error

// testMember stands in for the Leases of an API server, with compare-and-swap and with links that fail.
type testMember struct {
	coordinationclient.LeaseInterface // what is not implemented must not be called

	mu       sync.Mutex
	leases   map[types.NamespacedName]*coordinationv1.Lease
	version  int
	requests []request
	inFlight int
	// arrive, if set, is called before a request is carried out, and leave before it is answered.
	arrive, leave link
	spins         bool // it got too many requests at one instant
}

// mostAtOnce bounds the requests at one instant. In a bubble, a Publisher that never waits would stop the time.
const mostAtOnce = 1000

func newTestMember() *testMember {
	return &testMember{leases: map[types.NamespacedName]*coordinationv1.Lease{}, version: 100}
}

func (m *testMember) Leases(namespace string) coordinationclient.LeaseInterface {
	return &inNamespace{testMember: m, namespace: namespace}
}

type inNamespace struct {
	*testMember
	namespace string
}

// serve carries out one request.
func (n *inNamespace) serve(ctx context.Context, r request,
	carry func(types.NamespacedName) (*coordinationv1.Lease, error)) (obj *coordinationv1.Lease, err error) {
	r.at, r.key.Namespace = time.Now(), n.namespace
	m := n.testMember
	m.mu.Lock()
	m.requests = append(m.requests, r)
	m.inFlight++
	arrive, leave := m.arrive, m.leave
	if before := len(m.requests) - mostAtOnce; before > 0 && m.requests[before].at.Equal(r.at) {
		m.spins, arrive = true, swallow
	}
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.inFlight--
		m.mu.Unlock()
	}()
	if arrive != nil {
		if err := arrive(ctx, r); err != nil {
			return nil, err
		}
	}
	m.mu.Lock()
	if obj, err = carry(r.key); obj != nil {
		obj = obj.DeepCopy()
	}
	m.mu.Unlock()
	if leave != nil {
		if err := leave(ctx, r); err != nil {
			return nil, err
		}
	}
	return obj, err
}

// store stores an object under the next version. The caller holds mu.
func (m *testMember) store(key types.NamespacedName, obj *coordinationv1.Lease) *coordinationv1.Lease {
	obj = obj.DeepCopy()
	m.version++
	obj.ResourceVersion = strconv.Itoa(m.version)
	if obj.UID == "" {
		obj.UID = types.UID("object-" + strconv.Itoa(m.version))
	}
	m.leases[key] = obj
	return obj
}

func (n *inNamespace) Get(ctx context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	return n.serve(ctx, request{verb: "get", key: types.NamespacedName{Name: name}},
		func(key types.NamespacedName) (*coordinationv1.Lease, error) {
			if obj, ok := n.leases[key]; ok {
				return obj, nil
			}
			return nil, apierrors.NewNotFound(leases, name)
		})
}

func (n *inNamespace) Create(ctx context.Context, obj *coordinationv1.Lease,
	_ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	c, _ := wire.Read(obj)
	return n.serve(ctx, request{verb: "create", key: types.NamespacedName{Name: obj.Name}, lease: c},
		func(key types.NamespacedName) (*coordinationv1.Lease, error) {
			if _, ok := n.leases[key]; ok {
				return nil, apierrors.NewAlreadyExists(leases, obj.Name)
			}
			return n.store(key, obj), nil
		})
}

// current returns the object of a name if it has this UID and this version, and otherwise the API server's error.
func (n *inNamespace) current(key types.NamespacedName, uid types.UID, version string) (*coordinationv1.Lease, error) {
	obj, ok := n.leases[key]
	switch {
	case uid == "" || version == "":
		return nil, apierrors.NewBadRequest("a write without a UID creates again, one without a version overwrites")
	case !ok:
		return nil, apierrors.NewNotFound(leases, key.Name)
	case obj.UID != uid || obj.ResourceVersion != version:
		return nil, apierrors.NewConflict(leases, key.Name, errors.New("out of date"))
	}
	return obj, nil
}

func (n *inNamespace) Update(ctx context.Context, obj *coordinationv1.Lease,
	_ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	c, _ := wire.Read(obj)
	return n.serve(ctx, request{verb: "update", key: types.NamespacedName{Name: obj.Name}, lease: c},
		func(key types.NamespacedName) (*coordinationv1.Lease, error) {
			if _, err := n.current(key, obj.UID, obj.ResourceVersion); err != nil {
				return nil, err
			}
			stored := n.store(key, obj)
			if stored.DeletionTimestamp != nil && len(stored.Finalizers) == 0 {
				delete(n.leases, key)
			}
			return stored, nil
		})
}

func (n *inNamespace) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	_, err := n.serve(ctx, request{verb: "delete", key: types.NamespacedName{Name: name}},
		func(key types.NamespacedName) (*coordinationv1.Lease, error) {
			old, err := n.current(key, *o.Preconditions.UID, *o.Preconditions.ResourceVersion)
			if err != nil {
				return nil, err
			}
			if len(old.Finalizers) > 0 {
				old = old.DeepCopy()
				old.DeletionTimestamp = &metav1.Time{Time: time.Now()}
				n.store(key, old)
				return nil, nil
			}
			delete(n.leases, key)
			return nil, nil
		})
	return err
}

func (n *inNamespace) List(ctx context.Context, o metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	list := &coordinationv1.LeaseList{}
	_, err := n.serve(ctx, request{verb: "list", within: o.TimeoutSeconds},
		func(types.NamespacedName) (*coordinationv1.Lease, error) {
			selector, err := metav1.ParseToLabelSelector(o.LabelSelector)
			if err != nil || o.ResourceVersion == "0" {
				return nil, err // a cache answers the latter with a state from before there was anything
			}
			for _, obj := range n.leases {
				if obj.Labels["leasecast.dev/managed"] == selector.MatchLabels["leasecast.dev/managed"] {
					list.Items = append(list.Items, *obj.DeepCopy())
				}
			}
			list.ResourceVersion = strconv.Itoa(n.version)
			return nil, nil
		})
	return list, err
}

// lease returns a copy of a Lease, or nil.
func (m *testMember) lease(key types.NamespacedName) *coordinationv1.Lease {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leases[key].DeepCopy()
}

// put stores an object, and deletes the one of that name if it is nil. No watch shows that.
func (m *testMember) put(key types.NamespacedName, obj *coordinationv1.Lease) *coordinationv1.Lease {
	m.mu.Lock()
	defer m.mu.Unlock()
	if obj == nil {
		delete(m.leases, key)
		return nil
	}
	return m.store(key, obj).DeepCopy()
}

// set replaces an object without a new version.
func (m *testMember) set(key types.NamespacedName, obj *coordinationv1.Lease) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leases[key] = obj
}

// edit changes an object under a later version. No watch shows that.
func (m *testMember) edit(key types.NamespacedName, change func(*coordinationv1.Lease)) {
	obj := m.lease(key)
	change(obj)
	m.put(key, obj)
}

// since returns the requests from an instant on.
func (m *testMember) since(t time.Time) []request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(m.requests), func(r request) bool { return r.at.Before(t) })
}

// becomes sets what is done to every request from now on.
func (m *testMember) becomes(arrive, leave link) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.arrive, m.leave = arrive, leave
}

// swallow is a link that is dead without an error.
func swallow(ctx context.Context, _ request) error {
	<-ctx.Done()
	return ctx.Err()
}

// reset is a link that fails at once.
func reset(context.Context, request) error { return errors.New("connection refused") }

func refuse(context.Context, request) error { return errForbidden }

// delayed is a link on which a request takes that long.
func delayed(d func() time.Duration) link {
	return func(ctx context.Context, _ request) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(d()):
			return nil
		}
	}
}

// only applies a link to requests of one verb.
func (l link) only(verb string) link {
	return func(ctx context.Context, r request) error {
		if verb != "" && r.verb != verb {
			return nil
		}
		return l(ctx, r)
	}
}

func count(rs []request, verb string) int {
	return len(slices.DeleteFunc(slices.Clone(rs), func(r request) bool { return verb != "any" && r.verb != verb }))
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard"
)

// fakeMember answers as the API server of a member with the fences of a policy.
type fakeMember struct {
	policy     *v1alpha1.LeadershipPolicy
	namespaces []string
	allows     string // the namespace where its administrator allows fences from outside
	lock       *coordinationv1.Lease
	removed    string // the fences whose names contain it are not in force; "all"
	removedIn  string // the namespace in which no fence is in force
	forbids    bool   // whoever asks may not create Leases
	vacant     bool   // the hub has written no Lease there yet
	unread     bool   // it cannot be reached
	account    string // the service account that it has
	hidden     bool   // whoever asks may not list service accounts
}

func (m *fakeMember) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := func(code int, value any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		if status, is := value.(metav1.Status); is {
			status.Kind, status.APIVersion = "Status", "v1"
			value = status
		}
		_ = json.NewEncoder(w).Encode(value)
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case r.URL.Path == "/api/v1/namespaces":
		list := corev1.NamespaceList{}
		for _, name := range m.namespaces {
			ns := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
			if name == m.allows {
				ns.Labels = map[string]string{v1alpha1.FencingLabel: v1alpha1.FencingAllowed}
			}
			list.Items = append(list.Items, ns)
		}
		answer(http.StatusOK, list)
	case r.URL.Path == "/apis/coordination.k8s.io/v1/leases":
		list := coordinationv1.LeaseList{}
		if !m.vacant {
			list.Items = []coordinationv1.Lease{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "leasecast"}}}
		}
		answer(http.StatusOK, list)
	case strings.HasSuffix(r.URL.Path, "/serviceaccounts") && m.hidden:
		answer(http.StatusForbidden, apierrors.NewForbidden(corev1.Resource("serviceaccounts"), "", nil).Status())
	case strings.HasSuffix(r.URL.Path, "/serviceaccounts"):
		list := corev1.ServiceAccountList{}
		if r.URL.Query().Get("fieldSelector") == "metadata.name="+m.account {
			list.Items = []corev1.ServiceAccount{{}}
		}
		answer(http.StatusOK, list)
	case r.Method == http.MethodGet && m.lock != nil && parts[len(parts)-1] == m.lock.Name:
		answer(http.StatusOK, m.lock)
	case r.Method == http.MethodPost && r.URL.Query().Get("dryRun") == "All" && slices.Contains(m.namespaces, parts[4]):
		m.probed(w, r, parts[4], answer)
	default:
		answer(http.StatusNotFound, apierrors.NewNotFound(coordinationv1.Resource("leases"), "x").Status())
	}
}

// probed answers to a probe in a namespace as the fence in force does: it refuses it, or warns.
func (m *fakeMember) probed(w http.ResponseWriter, r *http.Request, namespace string, answer func(int, any)) {
	var probe coordinationv1.Lease
	_ = json.NewDecoder(r.Body).Decode(&probe)
	part := strings.Replace(strings.TrimPrefix(probe.Name, "leasecast-"), "-probe", "", 1) // gate- or wall-, and a version
	refuse := func(why string) {
		err := apierrors.NewForbidden(coordinationv1.Resource("leases"), probe.Name, errors.New(why))
		answer(http.StatusForbidden, err.Status())
	}
	if m.forbids {
		refuse(`User "eve" cannot create resource "leases"`)
		return
	}
	w.Header().Add("Warning", `299 - "this comes from another policy"`)
	for _, f := range guard.Fences("", m.policy, nil) {
		lock, isLock := f.Lock()
		silent := f.Warns() && (m.vacant || !slices.Contains(m.namespaces, "shop")) // it has no Lease
		if isLock && (lock.Namespace != namespace || silent) || namespace == m.removedIn {
			continue
		}
		for _, name := range f.Names() {
			if !strings.Contains(name, part) || m.removed == "all" || m.removed != "" && strings.Contains(name, m.removed) {
				continue
			}
			if !f.Warns() {
				refuse("ValidatingAdmissionPolicy '" + name + "' with binding '" + name + "' denied request: nobody may create " +
					"this Lease: it is asked for to see whether the fence is in force")
				return
			}
			w.Header().Add("Warning", fmt.Sprintf("299 - %q", "Validation failed for ValidatingAdmissionPolicy '"+name+"'"))
		}
	}
	answer(http.StatusCreated, probe)
}

// checked returns what fence check says of these members.
func checked(t *testing.T, s *snapshot, members map[string]*fakeMember, wide bool) (screen string, f *fenceCheck) {
	t.Helper()
	q, err := s.askFences("shops")
	if err != nil {
		return err.Error(), nil
	}
	q.connect = func(_ context.Context, name string) (*rest.Config, error) {
		m := members[name]
		if m.unread {
			return nil, errors.New("no route")
		}
		server := httptest.NewServer(m)
		t.Cleanup(server.Close)
		config := &rest.Config{Host: server.URL, WarningHandler: rest.NoWarnings{}}
		config.ContentType = "application/json"
		return config, nil
	}
	f = q.check(t.Context())
	var out strings.Builder
	if err := f.print(&table{to: &out}, s.at, wide); err != nil {
		t.Fatal(err)
	}
	return out.String(), f
}

// heldLock is a lock that was renewed some time ago.
func heldLock(holder string, renewed time.Duration) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "stock"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, RenewTime: micro(renewed), LeaseDurationSeconds: ptr.To[int32](15),
		},
	}
}

// Each row is what differs from a fleet in which all is well, and a part of what fence check says. East leads, and its
// program holds the lock.
func TestFenceCheck(t *testing.T) {
	const wellDenied = `shops: 4 fences in 2 clusters, problems: 0.
The hub says InForce: in force in all 2 clusters

LOCK        CLUSTER  HOLDER   RENEWED  LEADS
shop/stock  east     stock-1  2s ago   true
`
	const wellWide = wellDenied + "shop/stock  west     -        never    false\n"
	const oneIsAsked = "shops: 2 fences in 1 clusters"
	type fleet struct {
		*snapshot
		wide       bool
		east, west *fakeMember
		fencing    *v1alpha1.Fencing
	}
	elsewhere := func(f *fleet) {
		f.fencing.LeaderElectionLocks[0].Namespace = "kube-system"
		f.east.namespaces, f.west.namespaces = []string{"shop", "kube-system"}, []string{"shop", "kube-system"}
		f.east.allows = "kube-system"
	}
	gone := func(f *fleet) { // west has the lock's namespace only
		elsewhere(f)
		f.west.namespaces, f.west.allows, f.west.removed = []string{"kube-system"}, "kube-system", "lock"
	}
	selects := func(f *fleet, cluster string) {
		f.clusters[0].Labels["name"], f.clusters[1].Labels["name"] = "east", "west"
		f.policies[0].Spec.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"name": cluster}}
	}
	older := func(f *fleet, namespace string) {
		o := f.policies[0].DeepCopy()
		o.Name, o.CreationTimestamp = "older", metav1.NewTime(now.Add(-time.Hour))
		o.Spec.Namespaces.Names, o.Spec.LeaseName = []string{namespace}, "other"
		f.policies = append(f.policies, *o)
	}
	for name, test := range map[string]struct {
		differs func(f *fleet)
		want    string
		bad     bool
	}{
		"all is well":                                      {func(*fleet) {}, wellDenied, false},
		"all is well, in a wide table":                     {func(f *fleet) { f.wide = true }, wellWide, false},
		"a cluster is not selected":                        {func(f *fleet) { selects(f, "east") }, oneIsAsked, false},
		"a lock's namespace is there, the policy's is not": {gone, "NotEnforced  kube-system/stock: in namespace", true},
		"the second namespace is not fenced": {func(f *fleet) {
			f.policies[0].Spec.Namespaces.Names = []string{"shop", "till"}
			f.west.namespaces, f.west.removedIn = f.policies[0].Spec.Namespaces.Names, "till"
		}, "leasecast.dev: in namespace till", true},
		"a follower's lock is longer than the policy says": {func(f *fleet) {
			f.west.lock = heldLock("stock-2", 20*time.Second)
			*f.west.lock.Spec.LeaseDurationSeconds = 60
		}, "stock-2 holds the lock", true},
		"all warn": {func(f *fleet) { f.fencing.Enforcement = v1alpha1.EnforcementWarn },
			"shops: 4 fences in 2 clusters, problems: 0.", false},
		"all warn, and nobody has led yet": {func(f *fleet) {
			f.fencing.Enforcement, f.east.vacant, f.west.vacant = v1alpha1.EnforcementWarn, true, true
		}, "problems: 0", false},
		"a follower holds a lock that warns": {func(f *fleet) {
			f.fencing.Enforcement, f.west.lock = v1alpha1.EnforcementWarn, heldLock("stock-2", 3*time.Second)
		}, "west   east    HeldElsewhere  stock-2 holds the lock shop/stock, renewed 3s ago: with enforcement Deny the " +
			"fence stops it", true},
		"a follower holds a lock that is denied": {func(f *fleet) { f.west.lock = heldLock("stock-2", 3*time.Second) },
			"stock-2 holds the lock shop/stock, renewed 3s ago: the fence must stop it within 3m12s", true},
		"a follower's lock has run out": {func(f *fleet) {
			f.west.lock = heldLock("x", 15*time.Second)
		}, wellDenied, false},
		"a follower's lock was released":   {func(f *fleet) { f.west.lock = heldLock("", time.Second) }, wellDenied, false},
		"a namespace does not exist there": {func(f *fleet) { f.west.namespaces = nil }, wellDenied, false},
		"a fence of writes is removed": {func(f *fleet) { f.west.removed = "writes" },
			"west   -       NotEnforced  shops.default.writes.gate-", true},
		"a fence of a lock is removed": {func(f *fleet) { f.west.removed = "lock" },
			"west   -       NotEnforced  shop/stock: in namespace shop: the hub restores it", true},
		"a fence is removed, and the hub is gone": {func(f *fleet) {
			f.west.removed, f.hub = "lock", hubState{unknown: "there is no Lease"}
		}, "start the hub, which restores it", true},
		"whoever asks may not": {func(f *fleet) { f.west.forbids = true }, "Forbidden  shops.default.writes", true},
		"a fenced account is in no cluster": {func(f *fleet) {
			f.fencing.Writes[0].ServiceAccounts = append(f.fencing.Writes[0].ServiceAccounts,
				v1alpha1.FencedServiceAccount{Namespace: "shop", Name: "till"})
		}, "policy shops  -       AccountMissing  there is no ServiceAccount shop/till in east, west: compare", true},
		"accounts of a cluster cannot be listed": {func(f *fleet) { f.west.hidden = true },
			"west   -       Unread  the ServiceAccount checkout: ", true},
		"a fenced account is in one cluster": {func(f *fleet) { f.west.account = "" }, wellDenied, false},
		"a namespace is not labelled": {elsewhere,
			"NotAllowed  kube-system/stock: an administrator of the cluster has to allow", true},
		"a member cannot be reached": {func(f *fleet) {
			f.west.unread = true
		}, "Unread  it cannot be read from here: no route", true},
		"a cluster has no priority": {func(f *fleet) {
			delete(f.clusters[1].Labels, v1alpha1.PriorityLabel)
		}, "2 fences in 1 clusters", false},
		"an older policy fences its only lock": {func(f *fleet) {
			older(f, "bank")
			f.fencing.Writes = nil
		}, "west   -       NoFence  the policy fences nothing here", true},
		"no Cluster is selected": {func(f *fleet) {
			selects(f, "south")
			f.records = nil
		}, "NoFence  no Cluster that takes part is selected", true},
		"the hub says what is missing": {func(f *fleet) {
			f.policies[0].Status.Conditions[0] = metav1.Condition{
				Type: v1alpha1.ConditionFencesInForce, Status: metav1.ConditionFalse, Reason: "Unfenced",
				Message: "west (no rights)",
			}
		}, "policy shops  -       Unfenced  west (no rights)", true},
		"the hub says that a lock is idle": {func(f *fleet) {
			f.policies[0].Status.Conditions = append(f.policies[0].Status.Conditions, metav1.Condition{
				Type: v1alpha1.ConditionFenceTargetsFound, Status: metav1.ConditionFalse, Reason: "LockIdle", Message: "shop/stock",
			})
		}, "policy shops  -       LockIdle  shop/stock", true},
		"the hub has not looked yet": {func(f *fleet) {
			f.policies[0].Status.Conditions = nil
		}, "The hub says nothing yet", false},
		"there is no such policy": {func(f *fleet) {
			f.policies[0].Name = "others"
		}, `no policy "shops" in fleet "default"`, true},
		"there is no fence": {func(f *fleet) {
			f.policies[0].Spec.Fencing = nil
		}, "has no fence: write spec.fencing", true},
		"the policy is invalid": {func(f *fleet) {
			f.policies[0].Spec.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "no value!"}}
		}, "is invalid, so its fences stay as they were", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := well(leading("shop", "east"))
			s.policies[0].Spec.Namespaces.Names, s.policies[0].CreationTimestamp = []string{"shop"}, metav1.NewTime(now)
			s.policies[0].Spec.Fencing = &v1alpha1.Fencing{
				LeaderElectionLocks: []v1alpha1.LockFence{{
					Namespace: "shop", Name: "stock", LeaseDurationSeconds: 15, RenewDeadlineSeconds: 10, RetryPeriodSeconds: 2,
				}},
				Writes: []v1alpha1.WriteFence{{
					ServiceAccounts: []v1alpha1.FencedServiceAccount{{Name: "checkout"}},
					Resources:       []v1alpha1.FencedResources{{Names: []string{"configmaps"}}},
				}},
			}
			s.policies[0].Status.Conditions[0] = metav1.Condition{
				Type: v1alpha1.ConditionFencesInForce, Status: metav1.ConditionTrue, Reason: "InForce",
				Message: "in force in all 2 clusters",
			}
			member := func(lock *coordinationv1.Lease) *fakeMember {
				return &fakeMember{namespaces: []string{"shop"}, lock: lock, account: "checkout"}
			}
			f := &fleet{s, false, member(heldLock("stock-1", 2*time.Second)), member(nil), s.policies[0].Spec.Fencing}
			test.differs(f)
			f.east.policy = s.policy("shops").DeepCopy()
			f.west.policy = f.east.policy
			got, is := checked(t, f.snapshot, map[string]*fakeMember{"east": f.east, "west": f.west}, f.wide)
			if strings.HasPrefix(test.want, wellDenied) && got != test.want {
				t.Errorf("got %s", got)
			}
			if is != nil && strings.Contains(got, "NotEnforced") != slices.ContainsFunc(is.Fences, func(m memberFence) bool {
				return m.Problem == "NotEnforced"
			}) {
				t.Errorf("programs see %+v", is.Fences)
			}
			if bad := is == nil || len(is.Problems) > 0; bad != test.bad || !strings.Contains(got, test.want) {
				t.Errorf("problems %t, want %q in\n%s", bad, test.want, got)
			}
		})
	}
}

package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
)

// leaseIn is the Lease of namespace shop in a cluster that names a leader, renewed some time ago.
func leaseIn(t *testing.T, cluster, leader string, epoch int64, renewed time.Duration) *coordinationv1.Lease {
	t.Helper()
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "leasecast"}}
	at := time.Now().Add(-renewed)
	err := wire.Write(lease.Content{
		Term: lease.Term{
			Holder: lease.Identity(leader, "default"), Epoch: epoch, AcquireTime: at, RenewTime: at, Duration: 15 * time.Second,
		},
		Namespace: "shop", Name: "leasecast", Cluster: lease.Identity(cluster, "default"), ClusterUID: "uid-" + cluster,
	}, "sealed", l)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Each row is what the members show while the record says that east leads in epoch 7, and a part of what verify says.
func TestVerify(t *testing.T) {
	for name, test := range map[string]struct {
		east, west *coordinationv1.Lease // nil: there is no Lease
		unread     bool                  // west cannot be read
		want       string                // empty: all is well
	}{
		"all is well": {leaseIn(t, "east", "east", 7, 0), leaseIn(t, "west", "east", 7, time.Hour), false, ""},
		"the leader has no Lease": {nil, leaseIn(t, "west", "east", 7, time.Hour), false,
			"shop       east     it leads by the record, and has no Lease"},
		"its Lease has run out": {leaseIn(t, "east", "east", 7, time.Minute), nil, false, "its Lease has run out"},
		"its Lease is newer":    {leaseIn(t, "east", "east", 9, 0), nil, false, "epoch 9, above the record's 7"},
		"two lead": {leaseIn(t, "east", "east", 7, 0), leaseIn(t, "west", "west", 7, 0), false,
			"MORE THAN ONE CLUSTER LEADS"},
		"a member cannot be read": {leaseIn(t, "east", "east", 7, 0), nil, true, "west     it cannot be read from here"},
	} {
		s := well(leading("shop", "east"))
		v := s.verify(t.Context(), func(_ context.Context, member string) (client.Client, error) {
			b := fake.NewClientBuilder().WithScheme(scheme)
			l := map[string]*coordinationv1.Lease{"east": test.east, "west": test.west}[member]
			if l != nil {
				b = b.WithObjects(l)
			}
			if member == "west" && test.unread {
				return nil, errors.New("no route")
			}
			return b.Build(), nil
		})
		var out strings.Builder
		if err := v.print(&table{to: &out}); err != nil {
			t.Fatal(err)
		}
		bad := errors.Is(v.verdict(), errAttention)
		if bad != (test.want != "") || !strings.Contains(out.String(), test.want) {
			t.Errorf("%s: attention %t, want %q in\n%s", name, bad, test.want, out.String())
		}
	}
}

// Whoever may write the Secret of a kubeconfig must not have this machine run a program.
func TestAKubeconfigThatRunsAProgramIsRefused(t *testing.T) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "east-kubeconfig"},
		Data: map[string][]byte{"value": []byte(`apiVersion: v1
kind: Config
current-context: x
contexts: [{name: x, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://203.0.113.1"}}]
users:
- name: u
  user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/true, interactiveMode: Never}}
`)},
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(secret).Build()
	_, err := (&plugin{}).member(t.Context(), api, "default", "east", "")
	if err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got %v", err)
	}
}

package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
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

// verifyRow is what the members show while the record says that east leads in epoch 7, and a part of what verify says.
type verifyRow struct {
	east, west *coordinationv1.Lease // nil: there is no Lease
	hangs      string                // a member without an answer
	slow       string                // a member that answers when the Leases of others have run out
	want       string                // empty: all is well
}

func verifyRows(t *testing.T) map[string]verifyRow {
	t.Helper()
	const ago = memberTimeout - time.Second // such a Lease has not run out, and has when a member has hung for so long
	return map[string]verifyRow{
		"all is well": {leaseIn(t, "east", "east", 7, 0), leaseIn(t, "west", "east", 7, time.Hour), "", "", ""},
		"the leader has no Lease": {nil, leaseIn(t, "west", "east", 7, time.Hour), "", "",
			"shop       east     it leads by the record, and has no Lease"},
		"its Lease has run out": {leaseIn(t, "east", "east", 7, time.Minute), nil, "", "", "its Lease has run out"},
		"its Lease is newer":    {leaseIn(t, "east", "east", 9, 0), nil, "", "", "epoch 9, above the record's 7"},
		"two lead": {leaseIn(t, "east", "east", 7, 0), leaseIn(t, "west", "west", 7, 0), "", "",
			"MORE THAN ONE CLUSTER LEADS"},
		"two lead, and another member hangs": {
			leaseIn(t, "east", "east", 7, ago), leaseIn(t, "west", "west", 7, ago), "lab", "", moreThanOne,
		},
		"a follower hangs": {leaseIn(t, "east", "east", 7, ago), nil, "west", "",
			"0 disagree with their records.\n\nNAMESPACE  CLUSTER  PROBLEM\n-          west     it cannot be read from here"},
		"two lead, and another member is slow": {
			leaseIn(t, "east", "east", 7, ago), leaseIn(t, "west", "west", 7, ago), "", "lab", moreThanOne,
		},
		"a second leader is read when the first one's Lease has run out": {
			leaseIn(t, "east", "east", 7, ago), leaseIn(t, "west", "west", 7, 0), "", "west",
			"its Lease lets it lead, and by the record east leads",
		},
	}
}

func TestVerify(t *testing.T) {
	for name := range verifyRows(t) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testVerify(t, verifyRows(t)[name]) })
		})
	}
}

func testVerify(t *testing.T, test verifyRow) {
	ctx, cancel := context.WithTimeout(t.Context(), memberTimeout)
	defer cancel()
	v := well(leading("shop", "east")).verify(ctx, func(ctx context.Context, member string) (client.Client, error) {
		b := fake.NewClientBuilder().WithScheme(scheme)
		l := map[string]*coordinationv1.Lease{"east": test.east, "west": test.west}[member]
		if l != nil {
			b = b.WithObjects(l)
		}
		if member == test.slow {
			<-time.NewTimer(memberTimeout - time.Millisecond).C
		}
		if member == test.hangs {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return b.Build(), nil
	})
	var out strings.Builder
	if err := v.print(&table{to: &out}); err != nil {
		t.Fatal(err)
	}
	bad := errors.Is(v.verdict(), errAttention)
	if bad != (test.want != "") || !strings.Contains(out.String(), test.want) {
		t.Errorf("attention %t, want %q in\n%s", bad, test.want, out.String())
	}
}

// The poll's bound holds for all that is asked of a member, so the list of its Leases is the one request.
func TestAMemberIsAskedForItsLeasesOnly(t *testing.T) {
	asked := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		http.Error(w, "", http.StatusForbidden)
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "east")
	kubeconfig := clientcmdapi.Config{CurrentContext: "x", Contexts: map[string]*clientcmdapi.Context{"x": {Cluster: "x"}},
		Clusters: map[string]*clientcmdapi.Cluster{"x": {Server: server.URL}}}
	if err := clientcmd.WriteToFile(kubeconfig, file); err != nil {
		t.Fatal(err)
	}
	s := well(leading("shop", "east"))
	s.clusters = s.clusters[:1]
	_, _ = run(s, nil, "verify", "--member-kubeconfigs=east="+file)
	close(asked)
	for path := range asked {
		if path != "/apis/coordination.k8s.io/v1/leases" {
			t.Errorf("asked for %s", path)
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

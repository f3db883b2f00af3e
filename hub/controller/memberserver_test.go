package controller

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/skew"
)

// memberServer is a member's API server with some namespaces. Its watches do not last.
type memberServer struct {
	spaces []corev1.Namespace
	probes atomic.Int32 // how often the UID of the cluster was read
}

func (s *memberServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fails := func(code int32, why metav1.StatusReason) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(code))
		_ = json.NewEncoder(w).Encode(&metav1.Status{ // the client may have gone
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: why, Code: code,
		})
	}
	list, query := metav1.ListMeta{ResourceVersion: "1"}, r.URL.Query()
	switch {
	case path.Base(r.URL.Path) == metav1.NamespaceSystem:
		s.probes.Add(1)
		inProtobuf(w, &corev1.Namespace{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "uid"},
		})
	case r.Method != http.MethodGet: // it is stored as it was sent
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		_, _ = io.Copy(w, r.Body)
	case strings.HasSuffix(r.URL.Path, "-probe"):
		fails(http.StatusNotFound, metav1.StatusReasonNotFound)
	case query.Get("sendInitialEvents") != "":
		fails(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	case query.Get("watch") != "": // which ends at once
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	case path.Base(r.URL.Path) == "leases":
		kind := metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "LeaseList"}
		inProtobuf(w, &coordinationv1.LeaseList{TypeMeta: kind, ListMeta: list})
	default:
		kind := metav1.TypeMeta{APIVersion: "v1", Kind: "NamespaceList"}
		inProtobuf(w, &corev1.NamespaceList{TypeMeta: kind, ListMeta: list, Items: s.spaces})
	}
}

// inProtobuf answers with an object.
func inProtobuf(w http.ResponseWriter, o runtime.Object) {
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	_ = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(o, w) // the client may have gone
}

// kubeconfig starts the server, outside of a bubble, and returns the kubeconfig of cluster east. Each connection ends
// with its answer, or time would never pass in a bubble.
func (s *memberServer) kubeconfig(t *testing.T) *corev1.Secret {
	t.Helper()
	of := httptest.NewUnstartedServer(s)
	of.Config.SetKeepAlivesEnabled(false)
	of.Config.ReadHeaderTimeout = time.Second // of one without a request, too
	of.Config.ErrorLog = log.New(io.Discard, "", 0)
	of.StartTLS()
	t.Cleanup(of.Close)
	config := clientcmdapi.NewConfig()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: of.Certificate().Raw})
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: of.URL, CertificateAuthorityData: ca}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "token"}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	text, err := clientcmd.Write(*config)
	must(t, err)
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "east-kubeconfig"}, Data: map[string][]byte{"value": text},
	}
}

func namespaceOf(name, team string) corev1.Namespace {
	return corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid", ResourceVersion: "1", Labels: map[string]string{"team": team}},
	}
}

// A policy decides on what a connected member shows, has it probed, and judges its clock.
func TestConnectedMember(t *testing.T) {
	east := &memberServer{spaces: []corev1.Namespace{
		namespaceOf("shop", ""), namespaceOf("till", "shops"), namespaceOf("desk", "offices"),
	}}
	kubeconfig := east.kubeconfig(t)
	synctest.Test(t, func(t *testing.T) {
		p := policyOf("fleet", "shops", "shop")
		p.Spec.Timings.RenewIntervalMilliseconds, p.Spec.Timings.RequestTimeoutMilliseconds = 2000, 500
		p.Spec.Namespaces.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "shops"}}
		m := newTestFleetBy(t, clocktest.NewBubble(testStart), kubeconfig, pinned("east"), clusterOf("fleet", "west", "5"), p,
			policyOf("fleet2", "others", "desk"))
		pass(5 * time.Second)
		if !m.member("east").Connected {
			t.Fatalf("it is not connected: %+v", m.member("east").Problem)
		}
		for key, stranger := range map[fleet.Key]bool{eastKey: false, westKey: true} {
			if got := m.members.isStranger(key); got != stranger {
				t.Errorf("%s counts as never connected: %v", key, got)
			}
		}
		if !m.source.synced() {
			t.Error("the Clusters are not known")
		}
		var names []string
		for _, key := range m.sources.namespacesOf(t.Context(), "fleet") {
			names = append(names, key.String())
		}
		if slices.Sort(names); !slices.Equal(names, []string{"fleet/shop", "fleet/till"}) {
			t.Errorf("to be decided on are %q", names)
		}
		if ns, err := m.source.namespace(t.Context(), m.member("east"), "till"); err != nil || ns.Labels["team"] != "shops" {
			t.Errorf("till in east: %+v, %v", ns, err)
		}
		if _, err := m.source.namespace(t.Context(), m.member("east"), "nowhere"); !apierrors.IsNotFound(err) {
			t.Errorf("a namespace that does not exist: %v", err)
		}
		if _, err := m.source.namespace(t.Context(), m.member("west"), "till"); !errors.Is(err, errDisengaged) {
			t.Errorf("a member that is not connected: %v", err)
		}

		// The clock of the server is years off that of the bubble.
		m.status()
		pass(5 * time.Second)
		m.sources.recordProblem(eastKey)
		if events := strings.Join(m.events.events, "|"); !strings.Contains(events, "Warning ClockSkewed") {
			t.Errorf("events %q (%+v)", events, m.member("east").Problem)
		}
		before := east.probes.Load()
		pass(20 * time.Second)
		if n := east.probes.Load() - before; n < 10 || n > 20 {
			t.Errorf("probed %d times in 20 s, want at least every 2 s, and not each second", n)
		}
		s, _ := m.status()
		if got := inShort(s.Conditions, v1alpha1.ConditionClocksAgree); !strings.HasPrefix(got, "False ClockSkewed") {
			t.Error(got)
		}
		for eps, want := range map[time.Duration]skew.State{time.Second: skew.Beyond, time.Minute: skew.Unknown} {
			if got := m.source.clock(m.now(), m.member("east"), eps); got.State != want {
				t.Errorf("judged under %v: %v", eps, got)
			}
		}
	})
}

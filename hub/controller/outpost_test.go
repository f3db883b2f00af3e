package controller

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// pinned is a Cluster that takes part, of which the hub knows who it is.
func pinned(name string) *clusterv1.Cluster {
	c := clusterOf("fleet", name, "5")
	c.Annotations = map[string]string{v1alpha1.ClusterUIDAnnotation: "uid"}
	return c
}

// outpost is a server that tells who it is, and which namespaces there are, unless it refuses that.
type outpost struct {
	spaces []corev1.Namespace

	mu    sync.Mutex
	asked int // how often it told who it is
}

func (o *outpost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch query := r.URL.Query(); {
	case path.Base(r.URL.Path) == metav1.NamespaceSystem:
		o.mu.Lock()
		o.asked++
		o.mu.Unlock()
		inProtobuf(w, &corev1.Namespace{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "uid"},
		})
	case o.spaces != nil && r.Method != http.MethodGet: // it is stored as it was sent
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		_, _ = io.Copy(w, r.Body)
	case o.spaces != nil && strings.HasSuffix(r.URL.Path, "-probe"):
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write(encoded(failure(http.StatusNotFound, metav1.StatusReasonNotFound)))
	case o.spaces == nil:
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write(encoded(failure(http.StatusForbidden, metav1.StatusReasonForbidden)))
	case query.Get("sendInitialEvents") != "":
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = w.Write(encoded(failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)))
	case query.Get("watch") != "": // which ends at once
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	case path.Base(r.URL.Path) == "leases":
		inProtobuf(w, &coordinationv1.LeaseList{
			TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "LeaseList"}, ListMeta: metav1.ListMeta{
				ResourceVersion: "1",
			},
		})
	default:
		inProtobuf(w, &corev1.NamespaceList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NamespaceList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"},
			Items: o.spaces,
		})
	}
}

// inProtobuf answers with an object.
func inProtobuf(w http.ResponseWriter, o runtime.Object) {
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	_ = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(o, w) // the client may have gone
}

// read is how often it told who it is.
func (o *outpost) read() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.asked
}

// reached is a kubeconfig that leads there. Each connection ends with its answer, or time would never pass in a bubble.
// To be called outside of it.
func (o *outpost) reached(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	s := httptest.NewUnstartedServer(o)
	s.Config.SetKeepAlivesEnabled(false)
	s.Config.ReadHeaderTimeout = time.Second // one that nothing was asked on ends, too
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{
		Server: s.URL, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
			Bytes: s.Certificate().Raw}),
	}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "token"}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	text, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name + "-kubeconfig"}, Data: map[string][]byte{"value": text},
	}
}

// pass lets time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func encoded(object any) []byte {
	raw, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return append(raw, '\n')
}

func failure(code int32, why metav1.StatusReason) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: why, Code: code,
	}
}

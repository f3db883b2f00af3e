package fleet

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patience bounds every wait of these tests for something that must come.
const patience = 30 * time.Second

// TestFleet uses one fleet for all that leaves it whole.
func TestFleet(t *testing.T) {
	f := New(t, "east", "west")
	rules := map[string]func(*testing.T, *Fleet){
		"every server answers, directly and through its proxy":        serversAnswer,
		"a paused etcd lets no write through":                         pauseEtcd,
		"an API server that restarts keeps data, address and PKI":     restart,
		"a restored server has the data and versions of the snapshot": restore,
		"a registered member is a Cluster and a usable kubeconfig":    register,
		"kubeconfig files are written for all servers":                kubeconfigFiles,
	}
	for name, check := range rules {
		t.Run(name, func(t *testing.T) { check(t, f) })
	}
}

func serversAnswer(t *testing.T, f *Fleet) {
	for _, s := range f.Servers() {
		for way, config := range map[string]*rest.Config{"direct": s.AdminConfig(), "proxied": s.ViaProxy(s.AdminConfig())} {
			if _, err := getNamespace(t, config, metav1.NamespaceSystem); err != nil {
				t.Errorf("%s, %s: %v", s.Name(), way, err)
			}
		}
	}
}

func register(t *testing.T, f *Fleet) {
	east := f.Member("east")
	cluster, err := f.RegisterMember(t.Context(), east, "prod", "100")
	must(t, err)
	if got := cluster.Labels[PriorityLabel]; got != "100" {
		t.Errorf("want priority 100, got %q", got)
	}
	object, config := kubeconfigSecret(t, f, "prod", "east")
	if object.Type != clusterv1.ClusterSecretType || object.Labels[clusterv1.ClusterNameLabel] != "east" {
		t.Errorf("Cluster API would not know the Secret: type %q, labels %v", object.Type, object.Labels)
	}
	if want := "https://" + east.Proxy().Addr(); config.Host != want {
		t.Errorf("want the kubeconfig to lead to the proxy at %s, got %s", want, config.Host)
	}
	if _, err := getNamespace(t, config, metav1.NamespaceSystem); err != nil {
		t.Errorf("the kubeconfig in the hub does not work: %v", err)
	}
}

// kubeconfigSecret reads the kubeconfig of a Cluster as the hub would.
func kubeconfigSecret(t *testing.T, f *Fleet, namespace, cluster string) (*corev1.Secret, *rest.Config) {
	t.Helper()
	hub, err := f.hubClient()
	must(t, err)
	object := &corev1.Secret{}
	must(t, hub.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: cluster + "-kubeconfig"}, object))
	config, err := clientcmd.RESTConfigFromKubeConfig(object.Data["value"])
	must(t, err)
	return object, config
}

func TestTheHubAndTheLastMemberMayBeOfAnotherVersion(t *testing.T) {
	folders := map[string]string{}
	for _, name := range []string{"all", "hub", "last"} {
		folders[name] = t.TempDir()
		for _, program := range []string{"etcd", "kube-apiserver", "kube-controller-manager"} {
			must(t, os.WriteFile(filepath.Join(folders[name], program), nil, 0o600))
		}
	}
	t.Setenv(AssetsVariable, folders["all"])
	for name, test := range map[string]struct {
		hub, last string
		members   []string
		want      map[string]string
	}{
		"all are of one version": {"", "", []string{"a", "b"},
			map[string]string{"hub": "all", "a": "all", "b": "all"}},
		"the hub is of another": {"hub", "", []string{"a", "b"},
			map[string]string{"hub": "hub", "a": "all", "b": "all"}},
		"the last member is of another": {"", "last", []string{"a", "b"},
			map[string]string{"hub": "all", "a": "all", "b": "last"}},
		"which may be the only one": {"hub", "last", []string{"a"}, map[string]string{"hub": "hub", "a": "last"}},
		"and a hub is no member":    {"", "last", nil, map[string]string{"hub": "all"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(HubAssetsVariable, folders[test.hub])
			t.Setenv(LastMemberAssetsVariable, folders[test.last])
			got, err := assetsOf(test.members)
			must(t, err)
			for server, folder := range test.want {
				if got[server] != folders[folder] {
					t.Errorf("%s has the programs of %q", server, got[server])
				}
			}
			if len(got) != len(test.want) {
				t.Errorf("there are %d servers", len(got))
			}
		})
	}
}

func TestAFreeAddressIsKeptForAProgramThatIsToldOfIt(t *testing.T) {
	address := FreeAddress(t)
	for range 2 { // it may start again
		listener, err := net.Listen("tcp", address)
		must(t, err)
		must(t, listener.Close())
	}
	if runtime.GOOS != "linux" {
		return
	}
	// What asks for any port that is free asks like this.
	exclusive := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			must(t, syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR,
				0))
		})
	}}
	if listener, err := exclusive.Listen(t.Context(), "tcp", address); err == nil {
		_ = listener.Close()
		t.Errorf("%s is free for others", address)
	}
}

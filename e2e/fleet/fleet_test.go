package fleet

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
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
		"every server answers, directly and through its proxy":         serversAnswer,
		"a black hole silences one member and no other":                blackHole,
		"a held request arrives after its client gave up":              heldRequest,
		"a deleted namespace goes, with what it holds":                 namespaceGoes,
		"a new namespace gets its default service account":             namespaceGetsAccount,
		"a paused API server answers nobody, and goes on when resumed": pauseResume,
		"a paused etcd lets no write through":                          pauseEtcd,
		"an API server that restarts keeps data, address and PKI":      restart,
		"a user can do what RBAC grants, no more":                      userBound,
		"a service account can do what its rules say, no more":         serviceAccountBound,
		"credentials of one member are good at that member only":       credentialsApart,
		"the hub serves the CRDs that clusterctl moves":                hubServesCAPI,
		"a registered member is a Cluster and a usable kubeconfig":     register,
		"a kubeconfig can be rotated":                                  rotate,
		"kubeconfig files are written for all servers":                 kubeconfigFiles,
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

func blackHole(t *testing.T, f *Fleet) {
	east, west := f.Member("east"), f.Member("west")
	east.Proxy().BlackHole()
	defer east.Proxy().Heal()
	if _, err := getNamespace(t, timeLimited(east.ViaProxy(east.AdminConfig())), metav1.NamespaceSystem); err == nil {
		t.Error("east answers through a black hole")
	}
	if _, err := getNamespace(t, east.AdminConfig(), metav1.NamespaceSystem); err != nil {
		t.Errorf("east does not answer past its proxy: %v", err)
	}
	if _, err := getNamespace(t, west.ViaProxy(west.AdminConfig()), metav1.NamespaceSystem); err != nil {
		t.Errorf("west: %v", err)
	}
	east.Proxy().Heal()
	if _, err := getNamespace(t, east.ViaProxy(east.AdminConfig()), metav1.NamespaceSystem); err != nil {
		t.Errorf("east does not answer after Heal: %v", err)
	}
}

// heldRequest also shows how a drill keeps a request's cancellation from overtaking its effect.
func heldRequest(t *testing.T, f *Fleet) {
	east := f.Member("east")
	defer east.Proxy().Heal()
	admin, hub := newClient(t, east.AdminConfig()), newClient(t, timeLimited(east.ViaProxy(east.AdminConfig())))
	if _, err := hub.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	east.Proxy().HoldToMember()
	answer := make(chan error, 1)
	go func() {
		late := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "late"}}
		_, err := hub.CoreV1().ConfigMaps("default").Create(t.Context(), late, metav1.CreateOptions{})
		answer <- err
	}()
	await(t, "the request is in the hold", func(context.Context) error {
		if east.Proxy().Stats().KeptToMember == 0 {
			return errors.New("nothing is kept")
		}
		return nil
	})
	east.Proxy().CutToMember()
	if err := <-answer; err == nil {
		t.Fatal("a request was answered that is in the hold")
	}
	if _, err := admin.CoreV1().ConfigMaps("default").Get(t.Context(), "late", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("want the object not to exist before the release, got %v", err)
	}
	east.Proxy().Release()
	await(t, "the request has its effect", func(ctx context.Context) error {
		_, err := admin.CoreV1().ConfigMaps("default").Get(ctx, "late", metav1.GetOptions{})
		return err
	})
}

func namespaceGoes(t *testing.T, f *Fleet) {
	for _, s := range f.Servers() {
		c := newClient(t, s.AdminConfig())
		makeNamespace(t, c, "going")
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "content"}}
		if _, err := c.CoreV1().ConfigMaps("going").Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := c.CoreV1().Namespaces().Delete(t.Context(), "going", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range f.Servers() {
		c := newClient(t, s.AdminConfig())
		await(t, "the namespace is gone from "+s.Name(), func(ctx context.Context) error {
			_, err := c.CoreV1().Namespaces().Get(ctx, "going", metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(errors.New("it is still there"), err)
		})
	}
}

func namespaceGetsAccount(t *testing.T, f *Fleet) {
	c := newClient(t, f.Member("west").AdminConfig())
	makeNamespace(t, c, "new")
	await(t, "the default service account exists", func(ctx context.Context) error {
		_, err := c.CoreV1().ServiceAccounts("new").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

func pauseResume(t *testing.T, f *Fleet) {
	east := f.Member("east")
	if err := east.Pause(); err != nil {
		t.Fatal(err)
	}
	for way, config := range map[string]*rest.Config{"direct": east.AdminConfig(), "proxied": east.ViaProxy(east.AdminConfig())} {
		if _, err := getNamespace(t, timeLimited(config), metav1.NamespaceSystem); err == nil {
			t.Errorf("%s: a paused API server answered", way)
		}
	}
	if err := east.Resume(); err != nil {
		t.Fatal(err)
	}
	if _, err := getNamespace(t, east.ViaProxy(east.AdminConfig()), metav1.NamespaceSystem); err != nil {
		t.Errorf("after Resume: %v", err)
	}
}

func pauseEtcd(t *testing.T, f *Fleet) {
	east := f.Member("east")
	limited := newClient(t, timeLimited(east.AdminConfig()))
	if err := east.PauseEtcd(); err != nil {
		t.Fatal(err)
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "while-etcd-sleeps-"}}
	if _, err := limited.CoreV1().ConfigMaps("default").Create(t.Context(), object, metav1.CreateOptions{}); err == nil {
		t.Error("a write succeeded without etcd")
	}
	if err := east.ResumeEtcd(); err != nil {
		t.Fatal(err)
	}
	await(t, "writes succeed again", func(ctx context.Context) error {
		_, err := limited.CoreV1().ConfigMaps("default").Create(ctx, object, metav1.CreateOptions{})
		return err
	})
}

func restart(t *testing.T, f *Fleet) {
	east := f.Member("east")
	token, err := east.ServiceAccountConfig(t.Context(), "default", "survivor", readNamespaces)
	if err != nil {
		t.Fatal(err)
	}
	before, err := getNamespace(t, token, metav1.NamespaceSystem)
	if err != nil {
		t.Fatal(err)
	}
	pids := east.PIDs()
	if err := east.Kill(); err != nil {
		t.Fatal(err)
	}
	if pid := east.PIDs().APIServer; pid != 0 {
		t.Errorf("want no API server after Kill, got process %d", pid)
	}
	if _, err := getNamespace(t, timeLimited(token), metav1.NamespaceSystem); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("want connections refused after Kill, got %v", err)
	}
	if err := east.Pause(); !errors.Is(err, errNotRunning) {
		t.Errorf("Pause after Kill: want %q, got %v", errNotRunning, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	if err := east.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	now := east.PIDs()
	if now.APIServer == 0 || now.APIServer == pids.APIServer || now.Etcd != pids.Etcd {
		t.Errorf("want a new API server and the same etcd, had %+v, got %+v", pids, now)
	}
	after, err := getNamespace(t, east.ViaProxy(token), metav1.NamespaceSystem)
	if err != nil {
		t.Fatal(err)
	}
	if before.UID != after.UID {
		t.Errorf("kube-system changed from %s to %s", before.UID, after.UID)
	}
}

func userBound(t *testing.T, f *Fleet) {
	west := f.Member("west")
	admin := newClient(t, west.AdminConfig())
	makeNamespace(t, admin, "team")
	grant := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "editors"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "team-editors"}},
	}
	if _, err := admin.RbacV1().RoleBindings("team").Create(t.Context(), grant, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config, err := west.UserConfig("jo", "team-editors")
	if err != nil {
		t.Fatal(err)
	}
	jo := newClient(t, config)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "note"}}
	await(t, "the grant works", func(ctx context.Context) error {
		_, err := jo.CoreV1().ConfigMaps("team").Create(ctx, object, metav1.CreateOptions{})
		return err
	})
	if _, err := jo.CoreV1().ConfigMaps("default").Create(t.Context(), object, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("in another namespace: want it forbidden, got %v", err)
	}
	if _, err := jo.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "jos"},
	}, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("making namespaces: want it forbidden, got %v", err)
	}
}

var readNamespaces = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}}}

func serviceAccountBound(t *testing.T, f *Fleet) {
	west := f.Member("west")
	config, err := west.ServiceAccountConfig(t.Context(), "robots", "reader", readNamespaces)
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(t, config)
	await(t, "the rules work", func(ctx context.Context) error {
		_, err := c.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	if _, err := c.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("want it forbidden to list, got %v", err)
	}
	if _, err := west.ServiceAccountConfig(t.Context(), "robots", "reader", nil); err != nil {
		t.Fatal(err)
	}
	await(t, "the rules are taken back", func(ctx context.Context) error {
		_, err := c.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		if apierrors.IsForbidden(err) {
			return nil
		}
		return errors.Join(errors.New("it may still read"), err)
	})
}

func credentialsApart(t *testing.T, f *Fleet) {
	east, west := f.Member("east"), f.Member("west")
	token, err := east.ServiceAccountConfig(t.Context(), "default", "stranger", readNamespaces)
	if err != nil {
		t.Fatal(err)
	}
	for kind, config := range map[string]*rest.Config{"certificate": east.AdminConfig(), "token": token} {
		config.Host, config.CAData = west.AdminConfig().Host, west.AdminConfig().CAData
		if _, err := getNamespace(t, config, "default"); !apierrors.IsUnauthorized(err) {
			t.Errorf("%s: want it refused by another member, got %v", kind, err)
		}
	}
}

func hubServesCAPI(t *testing.T, f *Fleet) {
	hub, err := f.hubClient()
	if err != nil {
		t.Fatal(err)
	}
	if err := hub.List(t.Context(), &clusterv1.ClusterList{}); err != nil {
		t.Errorf("list Clusters: %v", err)
	}
	crds, err := loadCRDs(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	labelled := map[string]bool{}
	for _, crd := range crds {
		_, labelled[crd.Name] = crd.Labels[clusterctlLabel]
	}
	for _, name := range []string{"clusters.cluster.x-k8s.io", "machines.cluster.x-k8s.io"} {
		if !labelled[name] {
			t.Errorf("CRD %s lacks label %s", name, clusterctlLabel)
		}
	}
}

func register(t *testing.T, f *Fleet) {
	east := f.Member("east")
	cluster, err := f.RegisterMember(t.Context(), east, "prod", "100")
	if err != nil {
		t.Fatal(err)
	}
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

func rotate(t *testing.T, f *Fleet) {
	west := f.Member("west")
	if _, err := f.RegisterMember(t.Context(), west, "rotating", "50"); err != nil {
		t.Fatal(err)
	}
	reduced, err := west.ServiceAccountConfig(t.Context(), "default", "leasecast-hub", readNamespaces)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := Kubeconfig("west", west.ViaProxy(reduced))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.SetKubeconfig(t.Context(), "rotating", "west", kubeconfig); err != nil {
		t.Fatal(err)
	}
	_, config := kubeconfigSecret(t, f, "rotating", "west")
	if config.BearerToken != reduced.BearerToken || len(config.CertData) > 0 {
		t.Error("the Secret still has the old credentials")
	}
	await(t, "the new credentials work", func(context.Context) error {
		_, err := getNamespace(t, config, "default")
		return err
	})
}

func kubeconfigFiles(t *testing.T, f *Fleet) {
	dir := filepath.Join(t.TempDir(), "out")
	if err := f.WriteKubeconfigs(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"hub", "east", "west"} {
		config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, name+".kubeconfig"))
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := getNamespace(t, config, "default"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// kubeconfigSecret reads the kubeconfig of a Cluster as the hub would.
func kubeconfigSecret(t *testing.T, f *Fleet, namespace, cluster string) (*corev1.Secret, *rest.Config) {
	t.Helper()
	hub, err := f.hubClient()
	if err != nil {
		t.Fatal(err)
	}
	object := &corev1.Secret{}
	if err := hub.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: cluster + "-kubeconfig"}, object); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(object.Data["value"])
	if err != nil {
		t.Fatal(err)
	}
	return object, config
}

// timeLimited is for requests that are not expected to be answered.
func timeLimited(config *rest.Config) *rest.Config {
	config.Timeout = time.Second
	return config
}

// getNamespace asks over a connection of its own.
func getNamespace(t *testing.T, config *rest.Config, name string) (*corev1.Namespace, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return newClient(t, config).CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
}

// newClient makes a client that shares no connection with others and closes its own.
func newClient(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Proxy = http.ProxyFromEnvironment // a function makes client-go's transport cache miss
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(transport.CloseIdleConnections)
	c, err := kubernetes.NewForConfigAndClient(config, transport)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func makeNamespace(t *testing.T, c *kubernetes.Clientset, name string) {
	t.Helper()
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := c.CoreV1().Namespaces().Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func await(t *testing.T, what string, met func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			last = met(ctx)
			return last == nil, nil
		})
	if err != nil {
		t.Fatalf("waiting until %s: %v (last: %v)", what, err, last)
	}
}

// TestStop starts fleets for the sake of their end.
func TestStop(t *testing.T) {
	t.Run("ends paused and dead servers alike, and leaves no process and no file", func(t *testing.T) {
		f := New(t, "east")
		east := f.Member("east")
		if err := errors.Join(east.Pause(), east.PauseEtcd(), f.Hub().Kill()); err != nil {
			t.Fatal(err)
		}
		pids := map[string]int{
			"east's etcd": east.PIDs().Etcd, "east's API server": east.PIDs().APIServer, "hub's etcd": f.Hub().PIDs().Etcd,
		}
		if err := f.Stop(); err != nil {
			t.Fatal(err)
		}
		for name, pid := range pids {
			if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
				t.Errorf("%s, process %d, is still there: %v", name, pid, err)
			}
		}
		if _, err := os.Stat(f.dir.path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the folder of the fleet is still there: %v", err)
		}
		if err := f.Stop(); err != nil {
			t.Errorf("the second Stop fails: %v", err)
		}
		if err := east.Restart(t.Context()); err == nil {
			t.Error("a server of a stopped fleet was restarted")
		}
	})
}

// TestStartFails shows errors that a person can act on.
func TestStartFails(t *testing.T) {
	assets := os.Getenv(AssetsVariable)
	broken := t.TempDir()
	for _, name := range []string{"etcd", "kube-controller-manager"} {
		if err := os.Symlink(filepath.Join(assets, name), filepath.Join(broken, name)); err != nil {
			t.Fatal(err)
		}
	}
	script := "#!/bin/sh\necho the dog ate my flags >&2\nexit 1\n"
	if err := os.WriteFile(filepath.Join(broken, "kube-apiserver"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		assets  string
		options Options
		want    []string
	}{
		"no folder of binaries named": {want: []string{AssetsVariable, "make k8s"}},
		"a binary is missing":         {assets: t.TempDir(), want: []string{"etcd", "make k8s"}},
		"a server ends at once": {assets: broken, options: Options{Members: []string{"east"}},
			want: []string{"kube-apiserver of", "ended before", "the dog ate my flags"}},
		"a name is no label":     {assets: assets, options: Options{Members: []string{"East"}}, want: []string{`"East"`}},
		"a name is used twice":   {assets: assets, options: Options{Members: []string{"a", "a"}}, want: []string{`"a"`, "taken"}},
		"a member is called hub": {assets: assets, options: Options{Members: []string{"hub"}}, want: []string{`"hub"`, "taken"}},
		"no CRDs in the folder":  {assets: assets, options: Options{CRDs: broken}, want: []string{broken, "no CRDs"}},
		"no CRDs of Cluster API": {assets: assets, options: Options{CAPICRDs: broken}, want: []string{broken, "no CRDs"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(AssetsVariable, test.assets)
			t.Setenv("TMPDIR", t.TempDir())
			f, err := Start(t.Context(), test.options)
			if err == nil {
				_ = f.Stop()
				t.Fatal("the fleet started")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("want the error to mention %q: %v", want, err)
				}
			}
			if left, _ := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "*")); len(left) > 0 {
				t.Errorf("files were left: %v", left)
			}
		})
	}
}

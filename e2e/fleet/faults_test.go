package fleet

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

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
	await(t, "there is a connection to hold", func(ctx context.Context) error {
		_, err := hub.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		return err
	})
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
	if _, err := admin.CoreV1().ConfigMaps("default").Get(t.Context(), "late",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("want the object not to exist before the release, got %v", err)
	}
	east.Proxy().Release()
	await(t, "the request has its effect", func(ctx context.Context) error {
		_, err := admin.CoreV1().ConfigMaps("default").Get(ctx, "late", metav1.GetOptions{})
		return err
	})
}

func pauseResume(t *testing.T, f *Fleet) {
	east := f.Member("east")
	must(t, east.Pause())
	for way, config := range map[string]*rest.Config{"direct": east.AdminConfig(),
		"proxied": east.ViaProxy(east.AdminConfig())} {
		if _, err := getNamespace(t, timeLimited(config), metav1.NamespaceSystem); err == nil {
			t.Errorf("%s: a paused API server answered", way)
		}
	}
	must(t, east.Resume())
	if _, err := getNamespace(t, east.ViaProxy(east.AdminConfig()), metav1.NamespaceSystem); err != nil {
		t.Errorf("after Resume: %v", err)
	}
}

func pauseEtcd(t *testing.T, f *Fleet) {
	east := f.Member("east")
	limited := newClient(t, timeLimited(east.AdminConfig()))
	must(t, east.PauseEtcd())
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "while-etcd-sleeps-"}}
	if _, err := limited.CoreV1().ConfigMaps("default").Create(t.Context(), object, metav1.CreateOptions{}); err == nil {
		t.Error("a write succeeded without etcd")
	}
	must(t, east.ResumeEtcd())
	await(t, "writes succeed again", func(ctx context.Context) error {
		_, err := limited.CoreV1().ConfigMaps("default").Create(ctx, object, metav1.CreateOptions{})
		return err
	})
}

func restart(t *testing.T, f *Fleet) {
	east := f.Member("east")
	token, err := east.ServiceAccountConfig(t.Context(), "default", "survivor", readNamespaces)
	must(t, err)
	before, err := getNamespace(t, token, metav1.NamespaceSystem)
	must(t, err)
	pids := east.PIDs()
	must(t, east.Kill())
	if pid := east.PIDs().APIServer; pid != 0 {
		t.Errorf("want no API server after Kill, got process %d", pid)
	}
	if _, err := getNamespace(t, timeLimited(token), metav1.NamespaceSystem); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("want connections refused after Kill, got %v", err)
	}
	if other, err := net.Listen("tcp", strings.TrimPrefix(token.Host, "https://")); err == nil {
		t.Error("the port is free for others while the API server is down")
		_ = other.Close()
	}
	if err := east.Pause(); !errors.Is(err, errNotRunning) {
		t.Errorf("Pause after Kill: want %q, got %v", errNotRunning, err)
	}
	restarted := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with this goroutine; the server must not
		restarted <- east.Restart(t.Context())
	}()
	must(t, <-restarted)
	now := east.PIDs()
	if now.APIServer == 0 || now.APIServer == pids.APIServer || now.Etcd != pids.Etcd {
		t.Errorf("want a new API server and the same etcd, had %+v, got %+v", pids, now)
	}
	after, err := getNamespace(t, east.ViaProxy(token), metav1.NamespaceSystem)
	must(t, err)
	if before.UID != after.UID {
		t.Errorf("kube-system changed from %s to %s", before.UID, after.UID)
	}
}

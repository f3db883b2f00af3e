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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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

package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func newConfigMap(t *testing.T, c *kubernetes.Clientset, name string) *corev1.ConfigMap {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	object, err := c.CoreV1().ConfigMaps("default").Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	must(t, err)
	return object
}

// writeALot is for versions that a start of the server does not reach, which writes some things itself.
func writeALot(t *testing.T, c *kubernetes.Clientset, name string) *corev1.ConfigMap {
	t.Helper()
	for i := range 200 {
		newConfigMap(t, c, fmt.Sprintf("%s-%d", name, i))
	}
	return newConfigMap(t, c, name)
}

func version(t *testing.T, resourceVersion string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	must(t, err)
	return n
}

// restore also shows that a snapshot is of an etcd that goes on, and that it can be restored twice.
func restore(t *testing.T, f *Fleet) {
	west, east := f.Member("west"), f.Member("east")
	kept := newConfigMap(t, newClient(t, west.AdminConfig()), "kept")
	pids := west.PIDs()
	snapshot, err := west.Snapshot(t.Context())
	must(t, err)
	if now := west.PIDs(); now != pids {
		t.Errorf("a snapshot changed the processes from %+v to %+v", pids, now)
	}
	if err := east.Restore(t.Context(), snapshot); err == nil {
		t.Error("east took a snapshot of west")
	}
	for range 2 {
		lost := writeALot(t, newClient(t, west.AdminConfig()), "lost")
		must(t, west.Restore(t.Context(), snapshot))
		c := newClient(t, west.ViaProxy(west.AdminConfig()))
		got, err := c.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
		if err != nil || got.UID != kept.UID || got.ResourceVersion != kept.ResourceVersion {
			t.Errorf("what the snapshot held is not as it was: %v (%v)", got, err)
		}
		if _, err := c.CoreV1().ConfigMaps("default").Get(t.Context(), "lost",
			metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("what came after the snapshot: want it not to exist, got %v", err)
		}
		list, err := c.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
		must(t, err)
		if was, is := version(t, lost.ResourceVersion), version(t, list.ResourceVersion); is >= was {
			t.Errorf("want resourceVersions to have gone back to before %d, got %d", was, is)
		}
		makeNamespace(t, c, "restored") // not there the second time either
		await(t, "the controllers work", func(ctx context.Context) error {
			_, err := c.CoreV1().ServiceAccounts("restored").Get(ctx, "default", metav1.GetOptions{})
			return err
		})
	}
	must(t, snapshot.Discard())
	if _, err := os.Stat(snapshot.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a discarded snapshot is still there: %v", err)
	}
}

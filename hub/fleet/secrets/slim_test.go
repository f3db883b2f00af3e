package secrets

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/seal"
)

func filled(name string, size int) *corev1.Secret {
	s := secret("a", name)
	s.UID, s.ResourceVersion = "uid", "7"
	s.Annotations = map[string]string{v1alpha1.HubAnnotation: "mark", refused: "a lie", "other": strings.Repeat("x", 1000)}
	s.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	s.Data = map[string][]byte{KubeconfigKey: bytes.Repeat([]byte("k"), size), "other": make([]byte, 1000)}
	return s
}

func TestOfASecretOnlyWhatTheHubNeedsIsKept(t *testing.T) {
	for name, test := range map[string]struct {
		name    string
		size    int
		kept    bool
		value   int
		mark    string
		refused string
	}{
		"of a kubeconfig, its value":                {"east-kubeconfig", 100, true, 100, "", ""},
		"also if nobody gave it the type":           {"user-kubeconfig", MaxKubeconfig, true, MaxKubeconfig, "", ""},
		"of one that is too large, why":             {"east-kubeconfig", MaxKubeconfig + 1, true, 0, "", "65537 bytes: at most 65536"},
		"of the seal, the mark and not the key":     {seal.SecretName, 100, true, 0, "mark", ""},
		"of the Secrets of other programs, nothing": {"token", 100, false, 0, "", ""},
		"nor of a name that only looks like one":    {"east-kubeconfig-old", 100, false, 0, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := slimmer{newShares(func(string) (time.Time, bool) { return time.Time{}, true }, func(string) {})}
			e, kept := s.filter(watch.Event{Type: watch.Added, Object: filled(test.name, test.size)})
			if kept != test.kept {
				t.Fatalf("kept: %v", kept)
			}
			slim, ok := e.Object.(*corev1.Secret)
			if !ok || !kept {
				return
			}
			if len(slim.Data[KubeconfigKey]) > 0 {
				t.Error("the watch keeps a second copy of the kubeconfig")
			}
			if isKubeconfig(slim) {
				slim = s.show(slim)
			}
			if len(slim.Data[KubeconfigKey]) != test.value || len(slim.Data["other"]) > 0 || len(slim.ManagedFields) > 0 || slim.Annotations["other"] != "" {
				t.Errorf("%+v", slim)
			}
			if slim.UID != types.UID("uid") || slim.ResourceVersion != "7" || seal.MarkOf(slim) != test.mark {
				t.Errorf("%+v", slim.ObjectMeta)
			}
			if why := Refused(slim); (why == "") != (test.refused == "") || !strings.Contains(why, test.refused) {
				t.Errorf("refused: %q", why)
			}
		})
	}
}

// A namespace holds the Secrets of all kinds of programs.
func TestSecretsOfOthersAreListedAndNotKept(t *testing.T) {
	inWorld(t, account, func(t *testing.T, w *world) {
		for n := range 50 {
			if err := w.api.Tracker().Add(filled(fmt.Sprintf("token-%d", n), 100)); err != nil {
				t.Fatal(err)
			}
		}
		w.grant("get", "list", "watch", "create", "update")
		pass(askSlowest)
		w.mu.Lock()
		defer w.mu.Unlock()
		if kept := w.fleets["a"].store.ListKeys(); len(kept) != 1 || kept[0] != "a/east-kubeconfig" {
			t.Errorf("kept %v", kept)
		}
	})
}

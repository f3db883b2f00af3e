package secrets

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/seal"
)

const unread = "Secret east-kubeconfig is being read"

func TestWhatIsShownOfAKubeconfig(t *testing.T) {
	for name, test := range map[string]struct {
		kubeconfig string
		want       Kubeconfig
	}{
		"the largest that is read": {
			kubeconfig: strings.Repeat("k", transport.MaxKubeconfig),
			want:       Kubeconfig{Value: strings.Repeat("k", transport.MaxKubeconfig)},
		},
		"of one that is larger, why": {
			strings.Repeat("k", transport.MaxKubeconfig+1),
			Kubeconfig{Refused: `Secret east-kubeconfig: its key "value" has 65537 bytes: at most 65536 are read`},
		},
		"that there is none in the Secret": {"", Kubeconfig{Missing: `Secret east-kubeconfig has no key "value"`}},
	} {
		t.Run(name, func(t *testing.T) {
			inGrantedWorld(t, func(t *testing.T, w *world) {
				w.write(t, "east-kubeconfig", test.kubeconfig)
				synctest.Wait()
				w.shows("east")
				synctest.Wait()
				if got := w.Kubeconfig("a", "east"); got != test.want {
					t.Errorf("%.200v", got)
				}
			})
		})
	}
}

// A namespace holds the Secrets of all kinds of programs.
func TestSecretsOfOthersAreNotRead(t *testing.T) {
	inGrantedWorld(t, func(t *testing.T, w *world) {
		for n := range 50 {
			w.write(t, fmt.Sprintf("token-%d", n), "x")
			w.write(t, fmt.Sprintf("unneeded-%d-kubeconfig", n), "x")
		}
		w.shows("east")
		synctest.Wait()
		if got := w.shows("east"); got != "first" || !slices.Equal(w.reads(), []string{"east-kubeconfig"}) {
			t.Errorf("%q is shown, and %v were read", got, w.reads())
		}
		if got := w.shows("west"); got != "there is no Secret west-kubeconfig" {
			t.Error(got)
		}
	})
}

func TestLittleIsKeptOfTheMetadata(t *testing.T) {
	large := func(name string) *metav1.PartialObjectMetadata {
		text := strings.Repeat("x", 200<<10)
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace:       "a",
			Name:            name,
			ResourceVersion: "7",
			Labels:          map[string]string{"large": text},
			Finalizers:      []string{text},
			Annotations:     map[string]string{v1alpha1.HubAnnotation: "mark", "large": text},
			ManagedFields:   []metav1.ManagedFieldsEntry{{FieldsV1: &metav1.FieldsV1{Raw: []byte(text)}}},
		}}
	}
	for name, want := range map[string]string{
		"token":           "a/token",
		"east-kubeconfig": `&PartialObjectMetadata{ObjectMeta:{east-kubeconfig a 7 map[] map[]}}`,
		seal.SecretName:   `&PartialObjectMetadata{ObjectMeta:{leasecast-seal a 7 map[leasecast.dev/hub:mark] map[]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			got, err := slim(large(name))
			is := fmt.Sprint(got)
			if o, ok := got.(*metav1.PartialObjectMetadata); ok {
				is = fmt.Sprintf("&PartialObjectMetadata{ObjectMeta:{%s %s %s %v %v}}",
					o.Name, o.Namespace, o.ResourceVersion, o.Annotations, o.Labels)
				if o.Finalizers != nil || o.ManagedFields != nil {
					t.Error("finalizers or managed fields are kept")
				}
			}
			if err != nil || is != want {
				t.Errorf("%.300s, %v", is, err)
			}
		})
	}
}

func TestAKubeconfigIsKeptWhileAClusterNeedsIt(t *testing.T) {
	inGrantedWorld(t, func(t *testing.T, w *world) {
		if got := w.shows("east"); got != unread {
			t.Errorf("%q is shown before it is read", got)
		}
		synctest.Wait()
		told := w.told()
		if got := w.shows("east"); got != "first" || !slices.Equal(told, []string{"a/east-kubeconfig"}) {
			t.Errorf("%q is shown, told of %v", got, told)
		}
		w.Forget("a", "east")
		if got := w.shows("east"); got != unread {
			t.Errorf("%q is shown although it was released", got)
		}
		synctest.Wait()
		w.remove(t, "east-kubeconfig")
		synctest.Wait()
		if got := w.shows("east"); got != "there is no Secret east-kubeconfig" {
			t.Errorf("%q is shown although the Secret is deleted", got)
		}
	})
}

func TestAChangedKubeconfigReplacesTheOlderOneWhenItIsRead(t *testing.T) {
	inGrantedWorld(t, func(t *testing.T, w *world) {
		w.shows("east")
		synctest.Wait()
		failures := 3
		w.api.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			failures--
			return failures >= 0, nil, errors.New("not now")
		})
		w.told()
		w.write(t, "east-kubeconfig", "second")
		synctest.Wait()
		told := w.told()
		if got := w.shows("east"); got != "first" || !slices.Equal(told, []string{"a/east-kubeconfig"}) {
			t.Errorf("%q is shown, told of %v", got, told)
		}
		pass(10 * askFirst)
		if got := w.shows("east"); got != "second" || failures != -1 {
			t.Errorf("%q is shown; reads after the 3 that failed: %d", got, -failures)
		}
	})
}

func TestWhatIsShownOfTheSeal(t *testing.T) {
	inGrantedWorld(t, func(t *testing.T, w *world) {
		for _, text := range []string{"1", "2"} {
			key := bytes.Repeat([]byte(text), 32)
			w.told()
			w.put(t, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{
					Name:        seal.SecretName,
					Annotations: map[string]string{v1alpha1.HubAnnotation: "mark " + text},
				},
				Data: map[string][]byte{"key": key},
			})
			synctest.Wait()
			if mark, _ := w.Seal("a"); mark != "mark "+text {
				t.Errorf("%q is shown at once", mark)
			}
			synctest.Wait()
			if _, got := w.Seal("a"); !bytes.Equal(got, key) {
				t.Error("another key is shown")
			}
			if told := w.told(); len(told) != 2 {
				t.Errorf("told of %v", told)
			}
		}
		w.remove(t, seal.SecretName)
		synctest.Wait()
		if mark, key := w.Seal("a"); mark != "" || len(key) > 0 {
			t.Errorf("of a seal that is gone: %q", mark)
		}
	})
}

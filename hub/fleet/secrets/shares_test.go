package secrets

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
	toolscache "k8s.io/client-go/tools/cache"
)

// most is how many of the largest kubeconfigs are kept.
const most = maxFleet / MaxKubeconfig

// tenancy is the Clusters of a fleet and their kubeconfigs.
type tenancy struct {
	slimmer
	clusters map[string]int // how many seconds each is there, by the name of its Secret
	told     []string
}

func newTenancy() *tenancy {
	c := &tenancy{clusters: map[string]int{}}
	c.slimmer = slimmer{newShares(func(secret string) (time.Time, bool) {
		seconds, ok := c.clusters[secret]
		return time.Unix(int64(-seconds), 0), ok
	}, func(secret string) { c.told = append(c.told, secret) })}
	return c
}

// write writes a Secret, with as many bytes as are read, and returns how it is shown then.
func (c *tenancy) write(name string) string {
	c.filter(watch.Event{Type: watch.Modified, Object: filled(name, MaxKubeconfig)})
	return c.is(name)
}

func (c *tenancy) remove(name string) {
	c.filter(watch.Event{Type: watch.Deleted, Object: filled(name, MaxKubeconfig)})
}

func (c *tenancy) is(name string) string {
	shown := c.show(slim(filled(name, MaxKubeconfig)))
	switch {
	case Unread(shown):
		return "unread"
	case Refused(shown) != "":
		return Refused(shown)
	}
	return fmt.Sprint(len(shown.Data[KubeconfigKey]))
}

// fill makes as many Clusters with Secrets as are kept.
func (c *tenancy) fill(t *testing.T, seconds int) {
	t.Helper()
	for n := range most {
		name := fmt.Sprintf("a%d-kubeconfig", n)
		c.clusters[name] = seconds
		if got := c.write(name); got != whole {
			t.Fatalf("number %d: %s", n, got)
		}
	}
}

// whole is how a kubeconfig is shown that is kept.
var whole = fmt.Sprint(MaxKubeconfig)

func TestWhoseKubeconfigsAreKept(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, c *tenancy){
		"nothing of a Secret that no Cluster needs": func(t *testing.T, c *tenancy) {
			for n := range 2 * most {
				if got := c.write(fmt.Sprintf("a%d-kubeconfig", n)); got != "unread" {
					t.Fatalf("number %d: %s", n, got)
				}
			}
			if c.sum != 0 || len(c.all) > 0 || len(c.late) > 0 {
				t.Errorf("%d bytes of %d are kept, %d are to be read", c.sum, len(c.all), len(c.late))
			}
			c.clusters["west-kubeconfig"] = 1
			if got := c.write("west-kubeconfig"); got != whole {
				t.Error(got)
			}
		},
		"not that of a new Cluster where there is no room": func(t *testing.T, c *tenancy) {
			c.fill(t, 2)
			c.clusters["west-kubeconfig"] = 1
			if got := c.write("west-kubeconfig"); got != tooMany {
				t.Error(got)
			}
			if c.is("a0-kubeconfig") != whole || c.write("a0-kubeconfig") != whole {
				t.Error("one that was there is refused")
			}
		},
		"that of an old Cluster, although it comes last": func(t *testing.T, c *tenancy) {
			c.fill(t, 1)
			c.clusters["west-kubeconfig"] = 2
			if got := c.write("west-kubeconfig"); got != whole {
				t.Error(got)
			}
			refused := slices.DeleteFunc(c.told, func(name string) bool { return c.is(name) != tooMany })
			if len(refused) != 1 {
				t.Errorf("%d others are told that they are refused", len(refused))
			}
			for _, name := range refused {
				if c.all[name].value != nil {
					t.Errorf("%s is refused and takes memory", name)
				}
			}
		},
		"not what is too large, and it counts nothing": func(t *testing.T, c *tenancy) {
			c.clusters["large-kubeconfig"] = 9
			c.filter(watch.Event{Type: watch.Added, Object: filled("large-kubeconfig", MaxKubeconfig+1)})
			c.fill(t, 1)
			if got := c.is("large-kubeconfig"); !strings.Contains(got, "65537 bytes") {
				t.Error(got)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { test(t, newTenancy()) })
	}
}

func TestARefusedKubeconfigIsReadWhenThereIsRoomAgain(t *testing.T) {
	for name, free := range map[string]func(c *tenancy){
		"because a Secret is deleted":  func(c *tenancy) { c.remove("a0-kubeconfig") },
		"because a Cluster is deleted": func(c *tenancy) { c.release("a0-kubeconfig") },
	} {
		t.Run(name, func(t *testing.T) {
			c := newTenancy()
			c.fill(t, 2)
			c.clusters["west-kubeconfig"] = 1
			c.write("west-kubeconfig")
			c.told = nil
			free(c)
			if !slices.Equal(c.told, []string{"west-kubeconfig"}) || c.is("west-kubeconfig") != "unread" {
				t.Errorf("told %v, it is shown %s", c.told, c.is("west-kubeconfig"))
			}
			if next, ok := c.nextLate(); !ok || next != "west-kubeconfig" {
				t.Fatalf("to be read: %q", next)
			}
			c.putLate(filled("west-kubeconfig", MaxKubeconfig))
			if got := c.is("west-kubeconfig"); got != whole {
				t.Error(got)
			}
		})
	}
}

func TestWhatAWatchHasShownIsNewerThanWhatWasRead(t *testing.T) {
	c := newTenancy()
	c.clusters["west-kubeconfig"] = 1
	c.write("west-kubeconfig")
	c.putLate(filled("west-kubeconfig", 1))
	if got := c.is("west-kubeconfig"); got != whole {
		t.Error(got)
	}
}

func TestADeletionOfAnEarlierSecretDropsNothing(t *testing.T) {
	c := newTenancy()
	c.clusters["west-kubeconfig"] = 1
	c.write("west-kubeconfig")
	earlier := filled("west-kubeconfig", 1)
	earlier.UID = types.UID("earlier")
	c.forget(earlier)
	if got := c.is("west-kubeconfig"); got != whole {
		t.Error(got)
	}
}

func TestASecretThatIsGoneWithoutAWordTakesNoRoom(t *testing.T) {
	c := newTenancy()
	for _, name := range []string{"east-kubeconfig", "west-kubeconfig"} {
		c.clusters[name] = 1
		c.write(name)
	}
	there := toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)
	if err := there.Add(slim(filled("west-kubeconfig", 1))); err != nil {
		t.Fatal(err)
	}
	c.only(there)
	if c.sum != MaxKubeconfig || c.is("west-kubeconfig") != whole {
		t.Errorf("%d bytes are kept", c.sum)
	}
}

// value is what is shown of the kubeconfig of east.
func (w *world) value() string {
	shown := w.Get("a", "east-kubeconfig")
	if shown == nil {
		return "none"
	}
	return string(shown.Data[KubeconfigKey])
}

// inNeed runs a test with a Secret that no Cluster needs so far.
func inNeed(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	inWorld(t, account, func(t *testing.T, w *world) {
		w.mu.Lock()
		w.unneeded["east-kubeconfig"] = true
		w.mu.Unlock()
		if err := w.api.Tracker().Update(corev1.SchemeGroupVersion.WithResource("secrets"), filled("east-kubeconfig", 3), "a"); err != nil {
			t.Fatal(err)
		}
		w.grant("get", "list", "watch", "create", "update")
		pass(askSlowest)
		if got := w.value(); got != "" {
			t.Fatalf("%q is shown although no Cluster needs it", got)
		}
		w.mu.Lock()
		w.unneeded["east-kubeconfig"], w.seen = false, nil
		w.mu.Unlock()
		test(t, w)
	})
}

func TestAKubeconfigIsReadWhenAClusterComesToNeedIt(t *testing.T) {
	inNeed(t, func(t *testing.T, w *world) {
		if !Unread(w.Get("a", "east-kubeconfig")) {
			t.Error("it is not shown that it is being read")
		}
		pass(time.Millisecond)
		if got := w.value(); got != "kkk" || !slices.Equal(w.seen, []string{"a/east-kubeconfig"}) {
			t.Errorf("%q is shown, seen %v", got, w.seen)
		}
	})
}

func TestAKubeconfigThatCannotBeReadIsTriedAgain(t *testing.T) {
	inNeed(t, func(t *testing.T, w *world) {
		reads := 0
		w.api.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			reads++
			return reads <= 3, nil, errors.New("not now")
		})
		for range 10 {
			w.value() // as whoever is told does
			pass(askFirst)
		}
		if got := w.value(); got != "kkk" || reads != 4 {
			t.Errorf("%q is shown after %d reads", got, reads)
		}
	})
}

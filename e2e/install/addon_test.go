package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// clusterctl runs the real program with a local repository that holds a release of the add-on.
func (w *world) clusterctl(args ...string) string {
	w.t.Helper()
	assets := os.Getenv("CAPI_ASSETS")
	if assets == "" {
		w.t.Fatal("CAPI_ASSETS is not set: it must name the folder of clusterctl, which make capi builds")
	}
	release := filepath.Join(w.dir, "addon-leasecast", "v0.1.0")
	w.Must(os.MkdirAll(release, 0o755))
	dist := installer(w.t)
	for _, name := range []string{"addon-components.yaml", "metadata.yaml"} {
		content := musttest.Get(os.ReadFile(filepath.Join(dist, name)))(w.T)
		w.Must(os.WriteFile(filepath.Join(release, name), content, 0o600))
	}
	config := filepath.Join(w.dir, "clusterctl.yaml")
	entry := fmt.Sprintf("providers:\n- {name: leasecast, type: AddonProvider, url: %q}\n",
		filepath.Join(release, "addon-components.yaml"))
	w.Must(os.WriteFile(config, []byte(entry), 0o600))
	return run(w.t, []string{"CLUSTERCTL_DISABLE_VERSIONCHECK=true", "HOME=" + w.dir, "XDG_CONFIG_HOME=" + w.dir}, nil,
		filepath.Join(assets, "clusterctl"), append(args, "--config="+config)...)
}

func TestTheAddOnOfClusterctlLeadsOnceItIsGrantedAFleet(t *testing.T) {
	w := newWorld(t, "east", "west")
	components := w.clusterctl("generate", "provider", "--addon=leasecast:v0.1.0")
	manifest := filepath.Join(w.dir, "components.yaml")
	w.Must(os.WriteFile(manifest, []byte(components), 0o600))
	w.kubectl("apply", "--server-side", "-f", manifest)
	h := w.startHub()
	w.register("east", "west")
	w.Namespace("shop", "east", "west")
	w.Policy("shops", "shop")

	var command string
	musttest.Eventually(t, patience, "the policy names the missing grant", func(ctx context.Context) (err error) {
		command, err = w.missing(ctx)
		return err
	})
	if log := musttest.Get(os.ReadFile(h.Log()))(w.T); !strings.Contains(string(log), command) {
		t.Errorf("the log does not say %q", command)
	}
	// A fleet that nobody named, and that anybody can make, does not hold the hub up.
	musttest.Eventually(t, patience, "the hub is ready", h.ready)
	if _, err := w.Record("shop"); err == nil {
		t.Error("there is a record of a fleet whose kubeconfigs nobody may read")
	}

	args := strings.Fields(command)
	w.kubectl(args[1:]...)
	w.Leads("east", "shop", patience, "east", "west")
	musttest.Eventually(t, patience, "the policy says that nothing is missing", func(ctx context.Context) error {
		if command, err := w.missing(ctx); err == nil {
			return errors.New(command)
		}
		return nil
	})

	// What was seen stays, and the hub goes on with it.
	w.kubectl("-n", w.Fleet, "delete", "rolebinding", "leasecast-hub-fleet")
	if _, err := w.Leading("east", "shop", "east", "west"); err != nil {
		t.Error(err)
	}
}

// missing is the command that the policy advises.
func (w *world) missing(ctx context.Context) (command string, err error) {
	p := &v1alpha1.LeadershipPolicy{}
	if err := w.Hub.Get(ctx, client.ObjectKey{Namespace: w.Fleet, Name: "shops"}, p); err != nil {
		return "", err
	}
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionSecretsGranted)
	if c == nil || c.Status != metav1.ConditionFalse {
		return "", fmt.Errorf("conditions: %+v", p.Status.Conditions)
	}
	_, command, ok := strings.Cut(c.Message, "grant it that: ")
	if !ok {
		return "", fmt.Errorf("no command in %q", c.Message)
	}
	return command, nil
}

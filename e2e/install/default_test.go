package install

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
)

// One life of an installation, from make deploy to make uninstall.
func TestTheHubIsInstalledUsedAndRemoved(t *testing.T) {
	w := newWorld(t, "east", "west")
	w.make("deploy")
	h := w.startHub()
	harness.Eventually(t, patience, "the hub is ready", h.ready)
	w.register("east", "west")
	w.Namespace("shop", "east", "west")
	w.Policy("shops", "shop")
	w.Leads("east", "shop", patience, "east", "west")

	t.Run("metrics are for whom RBAC lets read them", func(t *testing.T) { w.metricsAreGuarded(t, h) })
	t.Run("the table of config/README.md has all metrics", func(t *testing.T) {
		w.failOver(t)
		w.tableIsComplete(t, h)
	})
	t.Run("the series of a member end with its label", func(t *testing.T) { w.seriesEnd(t, h) })
	t.Run("nothing is left behind", func(t *testing.T) { w.isRemoved(t) })
}

func (w *world) metricsAreGuarded(t *testing.T, h *hub) {
	url := "https://" + h.metrics + "/metrics"
	w.kubectl("create", "serviceaccount", "prometheus")
	token := w.as(metav1.NamespaceDefault, "prometheus").BearerToken
	for name, test := range map[string]struct {
		token string
		want  int
	}{"without a token": {"", http.StatusUnauthorized}, "without the role": {token, http.StatusForbidden}} {
		if status, _, err := get(t.Context(), url, test.token); err != nil || status != test.want {
			t.Errorf("%s: %d, %v; want %d", name, status, err, test.want)
		}
	}
	w.kubectl("create", "clusterrolebinding", "prometheus", "--clusterrole=leasecast-metrics-reader",
		"--serviceaccount=default:prometheus")
	w.kubectl("create", "serviceaccount", "scraper")
	w.kubectl("create", "clusterrolebinding", "scraper", "--clusterrole=leasecast-metrics-reader",
		"--serviceaccount=default:scraper")
	if _, err := w.scrape(t.Context(), h); err != nil {
		t.Error(err)
	}
}

// scrape returns the hub's own metrics.
func (w *world) scrape(ctx context.Context, h *hub) (map[string]*dto.MetricFamily, error) {
	status, body, err := get(ctx, "https://"+h.metrics+"/metrics", w.as(metav1.NamespaceDefault, "scraper").BearerToken)
	if err != nil || status != http.StatusOK {
		return nil, fmt.Errorf("%d: %s (%w)", status, body, err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	all, err := parser.TextToMetricFamilies(strings.NewReader(body))
	for name := range all {
		if !strings.HasPrefix(name, "leasecast_") {
			delete(all, name)
		}
	}
	return all, err
}

// failOver cuts east off until west leads.
func (w *world) failOver(t *testing.T) {
	east := w.Servers.Member("east")
	harness.Must(t, east.Kill())
	w.Leads("west", "shop", patience, "west")
	harness.Must(t, east.Restart(t.Context()))
	w.Eventually("east follows", patience, func() error {
		_, err := w.Leading("west", "shop", "east", "west")
		return err
	})
}

// table reads names and labels of metrics from config/README.md.
func table(t *testing.T) map[string][]string {
	content := harness.Get(os.ReadFile(filepath.Join(root(t), "config", "README.md")))(t)
	rows := map[string][]string{}
	for line := range strings.Lines(string(content)) {
		cells := strings.Split(line, "|")
		if !strings.HasPrefix(line, "| `leasecast_") || len(cells) != 6 {
			continue
		}
		labels := strings.FieldsFunc(cells[2], func(r rune) bool { return r == ',' || r == ' ' })
		slices.Sort(labels)
		rows[strings.Trim(cells[1], " `")] = labels
	}
	return rows
}

func (w *world) tableIsComplete(t *testing.T, h *hub) {
	said := harness.Get(w.scrape(t.Context(), h))(t)
	rows := table(t)
	for name, family := range said {
		labels := []string{}
		for _, l := range family.Metric[0].Label {
			labels = append(labels, l.GetName())
		}
		slices.Sort(labels)
		if row, ok := rows[name]; !ok || !slices.Equal(row, labels) {
			t.Errorf("%s has the labels %v, config/README.md says %v (there: %v)", name, labels, row, ok)
		}
	}
	for name := range rows {
		if said[name] == nil {
			t.Errorf("config/README.md speaks of %s, which the hub does not have", name)
		}
	}
	took := value(said["leasecast_last_failover_duration_seconds"])
	floor := value(said["leasecast_last_failover_floor_seconds"])
	duration := float64(timings.LeaseDurationMilliseconds) / 1000
	if longest := duration + 1; floor <= 0 || floor > longest || took < floor || took > longest+10 {
		t.Errorf("the failover took %v s, of which safety took %v s", took, floor)
	}
	if age := value(said["leasecast_renewal_age_seconds"]); age <= 0 || age > duration {
		t.Errorf("west leads, and its Lease is %v s old", age)
	}
}

// value is that of the first series.
func value(f *dto.MetricFamily) float64 {
	if f == nil {
		return -1
	}
	return f.Metric[0].GetGauge().GetValue()
}

func (w *world) seriesEnd(t *testing.T, h *hub) {
	w.kubectl("label", "cluster", "east", fleet.PriorityLabel+"-")
	harness.Eventually(t, patience, "no metric names east", func(ctx context.Context) error {
		said := must.Get(w.scrape(ctx, h))
		if said["leasecast_member_state"] == nil {
			return errors.New("no metric names any member")
		}
		for name, family := range said {
			for _, m := range family.Metric {
				for _, l := range m.Label {
					if l.GetName() == "member" && l.GetValue() == "east" {
						return errors.New(name)
					}
				}
			}
		}
		return nil
	})
}

func (w *world) isRemoved(t *testing.T) {
	w.kubectl("apply", "-k", filepath.Join(root(t), "config/all-namespaces"))
	before := sets.New(strings.Fields(w.kubectl("get", "clusterroles,clusterrolebindings", "-o", "name"))...)
	if !before.HasAll("clusterrole.rbac.authorization.k8s.io/leasecast-hub",
		"clusterrolebinding.rbac.authorization.k8s.io/leasecast-hub-fleet") {
		t.Fatal("it was not even there")
	}
	w.make("undeploy")
	w.make("uninstall")
	for _, kind := range []string{"clusterroles,clusterrolebindings",
		"validatingadmissionpolicies,validatingadmissionpolicybindings", "rolebindings,secrets -A", "crds", "namespaces"} {
		for name := range strings.FieldsSeq(w.kubectl(append([]string{"get", "-o", "name"}, strings.Fields(kind)...)...)) {
			if strings.Contains(name, "leasecast") {
				t.Errorf("the management cluster still has %s", name)
			}
		}
	}
	for name, member := range w.Members {
		leases := &coordinationv1.LeaseList{}
		harness.Must(t, member.List(t.Context(), leases))
		for i := range leases.Items {
			l := &leases.Items[i]
			if l.Labels[v1alpha1.ManagedLabel] != "" || l.Labels[v1alpha1.ManagedByLabel] == v1alpha1.ManagedByValue {
				t.Errorf("%s still has the Lease %s", name, client.ObjectKeyFromObject(l))
			}
		}
		for _, list := range []client.ObjectList{&admissionv1.ValidatingAdmissionPolicyList{},
			&admissionv1.ValidatingAdmissionPolicyBindingList{}} {
			harness.Must(t, member.List(t.Context(), list))
			if items := fmt.Sprint(list); strings.Contains(items, "leasecast") {
				t.Errorf("%s still has an admission policy: %s", name, items)
			}
		}
		for _, list := range []client.ObjectList{
			&rbacv1.ClusterRoleList{}, &rbacv1.ClusterRoleBindingList{}, &flowcontrolv1.FlowSchemaList{},
		} {
			harness.Must(t, member.List(t.Context(), list,
				client.MatchingLabels{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue}))
			if n := meta.LenList(list); n > 0 {
				t.Errorf("%s still has %d of the hub's rights: %v", name, n, list)
			}
		}
	}
}

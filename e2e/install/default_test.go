package install

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	"github.com/leasecast/leasecast/e2e/must/musttest"
	leasecast "github.com/leasecast/leasecast/hub"
)

// One life of an installation, from make deploy to make uninstall.
func TestTheHubIsInstalledUsedAndRemoved(t *testing.T) {
	w := newWorld(t, "east", "west")
	w.make("deploy")
	h := w.startHub()
	musttest.Eventually(t, patience, "the hub is ready", h.ready)
	w.register("east", "west")
	w.Namespace("shop", "east", "west")
	w.Policy("shops", "shop")
	w.Leads("east", "shop", patience, "east", "west")

	t.Run("metrics are for whom RBAC lets read them", func(t *testing.T) { w.metricsAreGuarded(t, h) })
	t.Run("debugging is for whom RBAC lets do it", func(t *testing.T) { w.debuggingIsGuarded(t, h) })
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
	_, body, err := get(t.Context(), url, w.as(metav1.NamespaceDefault, "scraper").BearerToken)
	for _, usual := range []string{
		`workqueue_depth{controller="namespaceleader"`, `name="namespaceleader"`, "process_resident_memory_bytes ",
		`controller_runtime_reconcile_time_seconds_bucket{controller="namespaceleader"`, "process_cpu_seconds_total ",
	} {
		if err != nil || !strings.Contains(body, usual) {
			t.Errorf("the dashboard asks for %s, and no such series is there: %v", usual, err)
		}
	}
}

func (w *world) debuggingIsGuarded(t *testing.T, h *hub) {
	scraper := w.as(metav1.NamespaceDefault, "scraper").BearerToken
	foresees := w.as(harness.HubNamespace, leasecast.CasesAccount).BearerToken
	w.kubectl("create", "serviceaccount", "debugger")
	w.kubectl("create", "clusterrolebinding", "debugger", "--clusterrole=leasecast-debug",
		"--serviceaccount=default:debugger")
	debugger := w.as(metav1.NamespaceDefault, "debugger").BearerToken
	for _, test := range []struct {
		method, path, token, sent string
		status                    int
		answer                    string
	}{
		{http.MethodGet, "/leasecast/debug/pprof/", scraper, "", http.StatusForbidden, ""},
		{http.MethodGet, "/leasecast/debug/pprof/", foresees, "", http.StatusForbidden, ""},
		{http.MethodGet, leasecast.CasesPath + "?namespace=default", scraper, "", http.StatusForbidden, ""},
		{http.MethodPut, "/leasecast/debug/verbosity", scraper, `{"level":"debug"}`, http.StatusForbidden, ""},
		{http.MethodGet, "/leasecast/debug/pprof/heap?debug=1", debugger, "", http.StatusOK, "heap profile"},
		{http.MethodGet, leasecast.CasesPath + "?namespace=default", foresees, "", http.StatusOK, `"Namespace":"shop"`},
		{http.MethodGet, leasecast.CasesPath + "?namespace=none", foresees, "", http.StatusInternalServerError,
			"unknown namespace"},
		{http.MethodPut, "/leasecast/debug/verbosity", debugger, `{"level":"Level(-8)"}`, http.StatusBadRequest,
			"unrecognized level"},
		{http.MethodPut, "/leasecast/debug/verbosity", debugger, `{"level":"debug"}`, http.StatusOK, `"debug"`},
		{http.MethodGet, "/leasecast/debug/verbosity", debugger, "", http.StatusOK, `"debug"`},
	} {
		status, body, err := harness.Ask(t.Context(), test.method, "https://"+h.metrics+test.path, test.token, test.sent)
		if err != nil || status != test.status || !strings.Contains(body, test.answer) {
			t.Errorf("%s %s %q: %d, %v: %s", test.method, test.path, test.sent, status, err, body)
		}
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
	musttest.Do(t, east.Kill())
	w.Leads("west", "shop", patience, "west")
	musttest.Do(t, east.Restart(t.Context()))
	w.Eventually("east follows", patience, func() error {
		_, err := w.Leading("west", "shop", "east", "west")
		return err
	})
}

// table reads names and labels of metrics from config/README.md, and which of them are there only while operators have
// ordered something.
func table(t *testing.T) (rows map[string][]string, ordered map[string]bool) {
	content := musttest.Get(os.ReadFile(filepath.Join(root(t), "config", "README.md")))(t)
	rows, ordered = map[string][]string{}, map[string]bool{}
	for line := range strings.Lines(string(content)) {
		cells := strings.Split(line, "|")
		if !strings.HasPrefix(line, "| `leasecast_") || len(cells) != 6 {
			continue
		}
		labels := strings.FieldsFunc(cells[2], func(r rune) bool { return r == ',' || r == ' ' })
		slices.Sort(labels)
		name := strings.Trim(cells[1], " `")
		rows[name] = labels
		ordered[name] = strings.Contains(cells[3], "while") || strings.Contains(cells[3], "drained")
	}
	return rows, ordered
}

func (w *world) tableIsComplete(t *testing.T, h *hub) {
	said := musttest.Get(w.scrape(t.Context(), h))(t)
	rows, ordered := table(t)
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
		if said[name] == nil && !ordered[name] {
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
	musttest.Eventually(t, patience, "no metric names east", func(ctx context.Context) error {
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
		musttest.Do(t, member.List(t.Context(), leases))
		for i := range leases.Items {
			l := &leases.Items[i]
			if l.Labels[v1alpha1.ManagedLabel] != "" || l.Labels[v1alpha1.ManagedByLabel] == v1alpha1.ManagedByValue {
				t.Errorf("%s still has the Lease %s", name, client.ObjectKeyFromObject(l))
			}
		}
		for _, list := range []client.ObjectList{&admissionv1.ValidatingAdmissionPolicyList{},
			&admissionv1.ValidatingAdmissionPolicyBindingList{}} {
			musttest.Do(t, member.List(t.Context(), list))
			if items := fmt.Sprint(list); strings.Contains(items, "leasecast") {
				t.Errorf("%s still has an admission policy: %s", name, items)
			}
		}
		for _, list := range []client.ObjectList{
			&rbacv1.ClusterRoleList{}, &rbacv1.ClusterRoleBindingList{}, &flowcontrolv1.FlowSchemaList{},
		} {
			musttest.Do(t, member.List(t.Context(), list,
				client.MatchingLabels{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue}))
			if n := meta.LenList(list); n > 0 {
				t.Errorf("%s still has %d of the hub's rights: %v", name, n, list)
			}
		}
	}
}

// remove runs config/remove.sh with the program as kubectl, and returns all that it prints.
func remove(t *testing.T, kubectl, limit string) (string, error) {
	cmd := exec.CommandContext(t.Context(), filepath.Join(root(t), "config", "remove.sh"))
	cmd.Env = append(os.Environ(), "KUBECTL="+kubectl, "LIMIT="+limit)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// refused is what the false kubectl prints where it fails.
const refused = "the connection was refused"

// falseKubectl gives the n-th line of the file that is named like the resource as its n-th answer, and then nothing
// more.
const falseKubectl = `#!/bin/sh
dir=$(dirname "$0")
echo "$*" >>"$dir/calls"
[ "$1" = get ] && [ -e "$dir/$2" ] || exit 0
line=$(head -n 1 "$dir/$2")
sed -i 1d "$dir/$2"
[ "$line" != FAIL ] || { echo "` + refused + `" >&2; exit 1; }
echo "$line"
`

func TestTheRemovalGoesOnOnlyWhenItKnowsThatNothingIsLeft(t *testing.T) {
	const clusters, records = "clusters.cluster.x-k8s.io", "namespaceleaders.leasecast.dev"
	const crd, sets = "crd", "leaderresourcesets.leasecast.dev"
	const bindings, secrets = "rolebindings.rbac.authorization.k8s.io", "secrets"
	const deletesSeal = "-n a delete --ignore-not-found secret/leasecast-seal"
	for name, test := range map[string]struct {
		answers map[string][]string // FAIL is a failure, the last is followed by successes that print nothing
		limit   string
		fails   bool
	}{
		"a look at the Clusters that fails is repeated": {map[string][]string{clusters: {"FAIL", "FAIL", "a/east", ""}},
			"60", false},
		"a look at the records that fails is repeated": {map[string][]string{records: {"FAIL", "FAIL", "a/shop", ""}}, "60",
			false},
		"Clusters that are pinned hold it up": {map[string][]string{clusters: {"a/east", "a/east"}}, "0", true},
		"so do resource sets":                 {map[string][]string{crd: {"crd/" + sets}, sets: {"a/shop"}}, "0", true},
		"a look at the resource sets that fails is repeated": {map[string][]string{crd: {"crd/" + sets},
			sets: {"FAIL", "a/shop", ""}}, "60", false},
		"so do records": {map[string][]string{records: {"FAIL"}}, "0", true},
		"so do grants":  {map[string][]string{bindings: {"FAIL"}}, "60", true},
		"so do seals":   {map[string][]string{secrets: {"FAIL"}}, "60", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			kubectl := filepath.Join(dir, "kubectl")
			musttest.Do(t, os.WriteFile(kubectl, []byte(falseKubectl), 0o700))
			if test.answers[secrets] == nil {
				musttest.Do(t, os.WriteFile(filepath.Join(dir, secrets), []byte("a\n"), 0o600))
			}
			for resource, lines := range test.answers {
				musttest.Do(t, os.WriteFile(filepath.Join(dir, resource), []byte(strings.Join(lines, "\n")+"\n"), 0o600))
			}
			out, err := remove(t, kubectl, test.limit)
			content, readErr := os.ReadFile(filepath.Join(dir, "calls"))
			musttest.Do(t, readErr)
			calls := strings.Split(string(content), "\n")
			if failed := err != nil; failed != test.fails || failed == slices.Contains(calls, deletesSeal) {
				t.Errorf("%v, and it should fail: %v\n%s\nit called kubectl with\n%s", err, test.fails, out, content)
			}
			for resource, lines := range test.answers {
				if lines[0] == "FAIL" && !strings.Contains(out, refused) {
					t.Errorf("the words of kubectl are not in what it prints:\n%s", out)
				}
				asked := 0
				for _, call := range calls {
					if strings.HasPrefix(call, "get "+resource+" ") {
						asked++
					}
				}
				if !test.fails && asked != len(lines) {
					t.Errorf("it asked for %s %d times, want %d", resource, asked, len(lines))
				}
			}
		})
	}
}

// By the second run the policies are gone, and with them what shows where the fleets were.
func TestASecondRemovalFindsWhatAFailedOneHasLeft(t *testing.T) {
	w := newWorld(t)
	w.make("install")
	w.kubectl("create", "namespace", "marked")
	w.kubectl("create", "namespace", "others")
	w.Policy("shops", "shop")
	for _, of := range []string{w.Fleet, "marked"} {
		w.kubectl("-n", of, "create", "secret", "generic", "leasecast-seal")
		w.kubectl("-n", of, "create", "rolebinding", "leasecast-hub-fleet", "--clusterrole=leasecast-hub-fleet",
			"--serviceaccount=a:leasecast-hub")
	}
	w.kubectl("-n", w.Fleet, "label", "secret", "leasecast-seal", v1alpha1.ManagedByLabel+"="+v1alpha1.ManagedByValue,
		"team=a")
	w.kubectl("-n", "marked", "annotate", "secret", "leasecast-seal", v1alpha1.HubAnnotation+"=uid/leasecast-system")
	w.kubectl("-n", "others", "create", "secret", "generic", "leasecast-seal")
	w.kubectl("-n", "others", "label", "secret", "leasecast-seal", "team=a")
	w.kubectl("-n", "others", "annotate", "secret", "leasecast-seal", "team=a")
	w.kubectl("-n", "others", "create", "rolebinding", "leasecast-hub-fleet", "--clusterrole=view",
		"--serviceaccount=a:leasecast-hub")
	left := func() string {
		return w.kubectl("get", "-A", "-o",
			`go-template={{range .items}}{{.kind}} {{.metadata.namespace}}/{{.metadata.name}}{{"\n"}}{{end}}`,
			"secrets,rolebindings,leadershippolicies")
	}

	cannot := filepath.Join(w.dir, "cannot-read-clusters")
	script := "#!/bin/sh\ncase \"$*\" in 'get clusters'*) echo " + refused + " >&2; exit 1;; esac\n" +
		"exec " + w.kubectlProgram() + " \"$@\"\n"
	w.Must(os.WriteFile(cannot, []byte(script), 0o700))
	if out, err := remove(t, cannot, "0"); err == nil || !strings.Contains(out, refused) {
		t.Errorf("%v: it should fail with the words of kubectl:\n%s", err, out)
	}
	all := left()
	if strings.Contains(all, "LeadershipPolicy") {
		t.Errorf("the first run should delete the policies:\n%s", all)
	}
	for _, of := range []string{w.Fleet, "marked", "others"} {
		for _, kind := range []string{"Secret", "RoleBinding"} {
			if !regexp.MustCompile(kind + " " + of + "/leasecast-").MatchString(all) {
				t.Errorf("after the first run, which knows nothing of Clusters, %s has no %s:\n%s", of, kind, all)
			}
		}
	}

	if out, err := remove(t, w.kubectlProgram(), "60"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var ours []string
	for line := range strings.Lines(left()) {
		if strings.Contains(line, "/leasecast-") {
			ours = append(ours, strings.TrimSpace(line))
		}
	}
	if want := []string{"Secret others/leasecast-seal", "RoleBinding others/leasecast-hub-fleet"}; !slices.Equal(ours,
		want) {
		t.Errorf("left are %q, want %q", ours, want)
	}
}

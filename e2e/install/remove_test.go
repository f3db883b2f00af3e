package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
)

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
		"Clusters that are pinned hold it up":     {map[string][]string{clusters: {"a/east", "a/east"}}, "0", true},
		"Clusters that cannot be read hold it up": {map[string][]string{clusters: {"FAIL", "FAIL"}}, "0", true},
		"so do records": {map[string][]string{records: {"FAIL"}}, "0", true},
		"so do grants":  {map[string][]string{bindings: {"FAIL"}}, "60", true},
		"so do seals":   {map[string][]string{secrets: {"FAIL"}}, "60", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			kubectl := filepath.Join(dir, "kubectl")
			harness.Must(t, os.WriteFile(kubectl, []byte(falseKubectl), 0o700))
			if test.answers[secrets] == nil {
				harness.Must(t, os.WriteFile(filepath.Join(dir, secrets), []byte("a\n"), 0o600))
			}
			for resource, lines := range test.answers {
				harness.Must(t, os.WriteFile(filepath.Join(dir, resource), []byte(strings.Join(lines, "\n")+"\n"), 0o600))
			}
			out, err := remove(t, kubectl, test.limit)
			content, readErr := os.ReadFile(filepath.Join(dir, "calls"))
			harness.Must(t, readErr)
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

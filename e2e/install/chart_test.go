package install

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// installer makes the files of a release, in a folder of the test.
func installer(t *testing.T) (dist string) {
	dist = t.TempDir()
	run(t, []string{"MAKEFLAGS=", "MAKELEVEL="}, nil, "make", "build-installer", "DIST="+dist)
	return dist
}

// helm renders the chart of such a folder as for a management cluster of today.
func helm(t *testing.T, dist string, args ...string) (string, error) {
	t.Helper()
	program := os.Getenv("HELM")
	if program == "" {
		t.Fatal("HELM is not set: it must name the helm program; make builds it and sets this")
	}
	cmd := exec.CommandContext(t.Context(), program, append([]string{"template", "leasecast",
		filepath.Join(dist, "leasecast"), "--namespace=" + hubNamespace, "--kube-version=v1.36.3"}, args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// objects are those of a YAML stream by kind and name, without fields that say nothing.
func objects(t *testing.T, stream string) map[string]map[string]any {
	all := map[string]map[string]any{}
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(stream), 4096)
	for {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return all
		}
		musttest.Do(t, err)
		if len(o.Object) > 0 {
			all[o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName()] = said(o.Object).(map[string]any)
		}
	}
}

// said is a value without empty maps and lists.
func said(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return v
	}
	for k, v := range m {
		v = said(v)
		if r := reflect.ValueOf(v); v == nil || (r.Kind() == reflect.Map || r.Kind() == reflect.Slice) && r.Len() == 0 {
			delete(m, k)
		} else {
			m[k] = v
		}
	}
	return m
}

func TestTheChartInstallsWhatTheManifestsInstall(t *testing.T) {
	dist := installer(t)
	manifest := musttest.Get(os.ReadFile(filepath.Join(dist, "install.yaml")))(t)
	rendered, err := helm(t, dist)
	if err != nil {
		t.Fatal(rendered)
	}
	want, got := objects(t, string(manifest)), objects(t, rendered)
	delete(want, "Namespace /"+hubNamespace) // Helm makes it
	for name, o := range want {
		switch chart := got[name]; {
		case chart == nil:
			t.Errorf("the chart has no %s", name)
		case strings.HasPrefix(name, "CustomResourceDefinition "):
			delete(chart["metadata"].(map[string]any)["annotations"].(map[string]any), "helm.sh/resource-policy")
		case strings.HasPrefix(name, "Deployment "):
			for _, o := range []map[string]any{o, chart} {
				container := at(o, "spec", "template", "spec")["containers"].([]any)[0].(map[string]any)
				if args := container["args"].([]any); args[len(args)-1] != "--namespace=default" {
					t.Errorf("%s: arguments %v", name, args)
				}
				delete(container, "args")
				said(container)
			}
		}
		if chart := got[name]; chart != nil && !reflect.DeepEqual(o, chart) {
			t.Errorf("%s: the chart has\n%v\nand install.yaml\n%v", name, chart, o)
		}
		delete(got, name)
	}
	for name := range got {
		t.Errorf("only the chart has %s", name)
	}
}

func at(o map[string]any, path ...string) map[string]any {
	for _, p := range path {
		o = o[p].(map[string]any)
	}
	return o
}

func TestValuesOfTheChart(t *testing.T) {
	dist := installer(t)
	has := func(name string) func(map[string]map[string]any) bool {
		return func(all map[string]map[string]any) bool { return all[name] != nil }
	}
	lacks := func(name string) func(map[string]map[string]any) bool {
		return func(all map[string]map[string]any) bool { return all[name] == nil }
	}
	image := func(suffix string) func(map[string]map[string]any) bool {
		return func(all map[string]map[string]any) bool {
			c := at(all["Deployment "+hubNamespace+"/leasecast-hub"], "spec", "template",
				"spec")["containers"].([]any)[0].(map[string]any)
			return strings.HasSuffix(c["image"].(string), suffix)
		}
	}
	says := func(text string) func(map[string]map[string]any) bool {
		return func(all map[string]map[string]any) bool {
			return strings.Contains(fmt.Sprint(all["Deployment "+hubNamespace+"/leasecast-hub"]), text)
		}
	}
	for value, test := range map[string]struct {
		what string
		ok   func(map[string]map[string]any) bool
	}{
		"fleetNamespaces={a,b}":       {"grants b", has("RoleBinding b/leasecast-hub-fleet")},
		"fleetNamespaces={a}":         {"does not grant default", lacks("RoleBinding default/leasecast-hub-fleet")},
		"serviceMonitor.enabled=true": {"has a ServiceMonitor", has("ServiceMonitor " + hubNamespace + "/leasecast-hub")},
		"networkPolicy.enabled=false": {"has no NetworkPolicy", lacks("NetworkPolicy " + hubNamespace + "/leasecast-hub")},
		"podDisruptionBudget.enabled=false": {"has no PodDisruptionBudget",
			lacks("PodDisruptionBudget " + hubNamespace + "/leasecast-hub")},
		"crds.install=false":            {"has no CRDs", lacks("CustomResourceDefinition /namespaceleaders.leasecast.dev")},
		"image.tag=v9":                  {"names the image", image("/leasecast-hub:v9")},
		"image.tag=v9@sha256:12ab":      {"names tag and digest", image("/leasecast-hub:v9@sha256:12ab")},
		"image.tag=sha256:12ab":         {"names the digest", image("/leasecast-hub@sha256:12ab")},
		"logVerbosity=5":                {"logs all", says("--v=5")},
		`fleetNamespaces=["123"]`:       {"grants 123", has("RoleBinding 123/leasecast-hub-fleet")},
		"goMemLimit=800MiB":             {"limits the heap", says("value:800MiB")},
		"resources.limits.cpu=3":        {"limits the processors", says("limits:map[cpu:3 memory:512Mi]")},
		"priorityClassName=low":         {"has a class", says("priorityClassName:low")},
		"affinity.podAffinity.a=b":      {"has an affinity", says("affinity:map[podAffinity:map[a:b]]")},
		"nodeSelector.disk=ssd":         {"selects nodes", says("nodeSelector:map[disk:ssd]")},
		"tolerations[0].key=hub":        {"tolerates taints", says("tolerations:[map[key:hub]]")},
		"imagePullSecrets[0].name=pull": {"may pull the image", says("imagePullSecrets:[map[name:pull]]")},
		"podAnnotations.a=b":            {"annotates Pods", says("annotations:map[a:b]")},
		"serviceAccount.annotations.a=b": {"annotates the hub's account alone", func(all map[string]map[string]any) bool {
			annotated := func(account string) bool {
				return strings.Contains(fmt.Sprint(all["ServiceAccount "+hubNamespace+"/"+account]), "a:b")
			}
			return annotated("leasecast-hub") && !annotated("leasecast-what-if")
		}},
		"crds.keep=false": {"deletes the CRDs with the chart", func(all map[string]map[string]any) bool {
			metadata := at(all["CustomResourceDefinition /namespaceleaders.leasecast.dev"], "metadata")
			return strings.Contains(fmt.Sprint(metadata["annotations"]), "helm.sh/resource-policy:delete")
		}},
		"replicaCount=1": {"lets a node be drained", func(all map[string]map[string]any) bool {
			spec := at(all["PodDisruptionBudget "+hubNamespace+"/leasecast-hub"], "spec")
			return spec["minAvailable"] == nil && fmt.Sprint(spec["maxUnavailable"]) == "1"
		}},
	} {
		set := "--set="
		if strings.Contains(value, `"`) {
			set = "--set-json="
		}
		rendered, err := helm(t, dist, set+value)
		if err != nil {
			t.Errorf("%s: %s", value, rendered)
		} else if !test.ok(objects(t, rendered)) {
			t.Errorf("%s: it should be so that it %s", value, test.what)
		}
	}
	for _, value := range []string{"replicaCount=0", "replicas=2", "fleetNamespaces={Not_A_Name}",
		"image.pullPolicy=Sometimes", "networkPolicy.enabled=perhaps",
		"logVerbosity=6", "logVerbosity=-1", "goMemLimit=1Gi"} {
		name, _, _ := strings.Cut(value, "=")
		if rendered, err := helm(t, dist, "--set="+value); err == nil || !strings.Contains(rendered,
			strings.ReplaceAll(name, ".", "/")) {
			t.Errorf("%s makes no sense, and helm says: %s", value, rendered[:min(300, len(rendered))])
		}
	}
}

func TestAnImageWithoutATagIsNotInstalled(t *testing.T) {
	for _, target := range []string{"deploy", "build-installer"} {
		cmd := exec.CommandContext(t.Context(), "make", "--dry-run", target, "IMAGE=registry.example/hub")
		cmd.Dir, cmd.Env = root(t), append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=")
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "has no tag: write name:tag") {
			t.Errorf("make %s: %v\n%s", target, err, out)
		}
	}
}

func TestTheImageIsOurProgramsAndNotRoot(t *testing.T) {
	const name = "example.org/hub:v1.2.3"
	dist := t.TempDir()
	run(t, []string{"MAKEFLAGS=", "MAKELEVEL="}, nil, "make", "image", "VERSION=v1.2.3", "IMAGE="+name, "ARCH=amd64",
		"DIST="+dist)
	archive := musttest.Get(os.ReadFile(filepath.Join(dist, "leasecast-hub-amd64.tar")))(t)
	image := untar(t, archive)
	var manifest []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	musttest.Do(t, json.Unmarshal(image["manifest.json"], &manifest))
	if len(manifest) != 1 || len(manifest[0].Layers) != 1 || len(manifest[0].RepoTags) != 1 ||
		manifest[0].RepoTags[0] != name {
		t.Fatalf("%+v", manifest)
	}
	var config struct {
		OS, Architecture string
		Config           struct {
			User       string
			Entrypoint []string
		}
	}
	musttest.Do(t, json.Unmarshal(image[manifest[0].Config], &config))
	if config.OS != "linux" || config.Architecture != "amd64" || config.Config.User != "65532:65532" ||
		len(config.Config.Entrypoint) != 1 {
		t.Fatalf("%+v", config)
	}
	files := untar(t, image[manifest[0].Layers[0]])
	if len(files["leasecast-gate"]) == 0 {
		t.Error("leasecast-gate is not in it")
	}
	program := files[strings.TrimPrefix(config.Config.Entrypoint[0], "/")]
	path := filepath.Join(t.TempDir(), "hub")
	musttest.Do(t, os.WriteFile(path, program, 0o700))
	if out := run(t, nil, nil, path, "-version"); !strings.Contains(out, "v1.2.3") {
		t.Errorf("it says that it is %s", out)
	}
}

func untar(t *testing.T, archive []byte) map[string][]byte {
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		musttest.Do(t, err)
		files[h.Name] = musttest.Get(io.ReadAll(r))(t)
	}
}

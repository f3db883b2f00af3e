// Command chart makes the Helm chart out of the rendered config/default. Without values it installs the same objects.
// make build-installer runs it.
package main

import (
	"bytes"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

//go:embed values.schema.json
var schema []byte

//go:embed notes.txt
var notes []byte

// What the source calls what each installation has its own of.
const (
	hubNamespace   = "leasecast-system"
	fleetNamespace = "default"
)

func main() {
	version := flag.String("version", "", "version of the hub, as v1.2.3")
	out := flag.String("out", "", "folder of the chart")
	flag.Parse()
	if err := run(os.Stdin, *version, *out); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

// run reads objects from a YAML stream and writes the chart.
func run(in io.Reader, version, out string) error {
	if !strings.HasPrefix(version, "v") || out == "" {
		return errors.New("-version=v1.2.3 and -out are needed")
	}
	c := chart{values: map[string]any{}, files: map[string][]byte{}}
	decoder := utilyaml.NewYAMLOrJSONDecoder(in, 4096)
	for {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if len(o.Object) == 0 {
			continue
		}
		if err := c.add(o); err != nil {
			return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	if err := c.finish(version); err != nil {
		return err
	}
	for name, content := range c.files {
		path := filepath.Join(out, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// chart is what was made so far.
type chart struct {
	values      map[string]any
	files       map[string][]byte
	expressions []string
}

// placeholder is what stands for an expression until the object is YAML.
var placeholder = regexp.MustCompile(`['"]?@@(\d+)@@['"]?`)

// says returns a placeholder for an expression of Helm.
func (c *chart) says(expression string) string {
	c.expressions = append(c.expressions, expression)
	return "@@" + strconv.Itoa(len(c.expressions)-1) + "@@"
}

// add makes a template of an object.
func (c *chart) add(o *unstructured.Unstructured) error {
	before, after := "", ""
	given := func(value string) {
		before, after = "{{- if .Values."+value+" }}\n", "{{- end }}\n"
	}
	switch o.GetKind() {
	case "Namespace":
		return nil // Helm makes it
	case "CustomResourceDefinition":
		given("crds.install")
		annotations := o.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations["helm.sh/resource-policy"] = c.says(`{{ if .Values.crds.keep }}keep{{ else }}delete{{ end }}`)
		o.SetAnnotations(annotations)
	case "NetworkPolicy":
		given("networkPolicy.enabled")
	case "PodDisruptionBudget":
		given("podDisruptionBudget.enabled")
	case "ServiceMonitor":
		given("serviceMonitor.enabled")
	case "ServiceAccount":
		unstructuredSet(o.Object, c.says("{{ toJson .Values.serviceAccount.annotations }}"), "metadata", "annotations")
	case "RoleBinding":
		if o.GetNamespace() == fleetNamespace {
			o.SetNamespace(c.says("{{ quote . }}"))
			before, after = "{{- range .Values.fleetNamespaces }}\n---\n", "{{- end }}\n"
		}
	case "Deployment":
		if err := c.deployment(o); err != nil {
			return err
		}
	}
	text, err := yaml.Marshal(o.Object)
	if err != nil {
		return err
	}
	if bytes.Contains(text, []byte("{{")) {
		return errors.New("the source has {{ in it, which Helm would take for its own")
	}
	release := "{{ $.Release.Namespace }}"
	text = bytes.ReplaceAll(text, []byte(hubNamespace), []byte(release))
	text = placeholder.ReplaceAllFunc(text, func(m []byte) []byte {
		n, _ := strconv.Atoi(string(placeholder.FindSubmatch(m)[1]))
		return []byte(c.expressions[n])
	})
	name := strings.ToLower(o.GetKind()) + "-" + strings.ReplaceAll(o.GetName(), ".", "-") + ".yaml"
	c.files[filepath.Join("templates", name)] = []byte(before + string(text) + after)
	return nil
}

// deployment makes values of what users want to be different.
func (c *chart) deployment(o *unstructured.Unstructured) error {
	c.values["replicaCount"] = o.Object["spec"].(map[string]any)["replicas"]
	unstructuredSet(o.Object, c.says("{{ .Values.replicaCount }}"), "spec", "replicas")

	pod, _, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
	if err != nil {
		return err
	}
	containers, _, err := unstructured.NestedSlice(pod, "containers")
	if err != nil || len(containers) != 1 {
		return fmt.Errorf("there should be one container: %w", err)
	}
	manager := containers[0].(map[string]any)
	repository, tag := splitImage(fmt.Sprint(manager["image"]))
	if tag == "" {
		return fmt.Errorf("the image %v has no tag: name one, or a digest", manager["image"])
	}
	c.values["image"] = map[string]any{"repository": repository, "tag": tag, "pullPolicy": manager["imagePullPolicy"]}
	manager["image"] = c.says(`{{ .Values.image.repository }}` +
		`{{ if hasPrefix "sha256:" .Values.image.tag }}@{{ else }}:{{ end }}{{ .Values.image.tag }}`)
	manager["imagePullPolicy"] = c.says("{{ .Values.image.pullPolicy }}")
	manager["args"] = []any{
		c.says(`--v={{ .Values.logVerbosity }}`),
		c.says(`"--namespace={{ join "," .Values.fleetNamespaces }}"`),
	}
	c.values["logVerbosity"] = 0
	c.values["fleetNamespaces"] = []any{fleetNamespace}
	for _, e := range manager["env"].([]any) {
		if e := e.(map[string]any); e["name"] == "GOMEMLIMIT" {
			c.values["goMemLimit"] = e["value"]
			e["value"] = c.says("{{ quote .Values.goMemLimit }}")
		}
	}
	c.values["resources"] = manager["resources"]
	manager["resources"] = c.says("{{ toJson .Values.resources }}")
	for name, value := range map[string]any{
		"imagePullSecrets": []any{}, "nodeSelector": map[string]any{}, "tolerations": []any{}, "affinity": map[string]any{},
		"priorityClassName": pod["priorityClassName"],
	} {
		c.values[name] = value
		pod[name] = c.says("{{ toJson .Values." + name + " }}")
	}
	pod["containers"] = containers
	unstructuredSet(o.Object, pod, "spec", "template", "spec")
	c.values["podAnnotations"] = map[string]any{}
	unstructuredSet(o.Object, c.says("{{ toJson .Values.podAnnotations }}"), "spec", "template", "metadata", "annotations")
	return nil
}

// splitImage splits an image into its name and tag. A digest is part of the tag. The colon of a registry's port comes
// before a slash.
func splitImage(image string) (repository, tag string) {
	name, digest, _ := strings.Cut(image, "@")
	if colon := strings.LastIndex(name, ":"); colon > strings.LastIndex(name, "/") {
		return image[:colon], image[colon+1:]
	}
	return name, digest
}

// unstructuredSet sets a field of an object, all of whose parents are there.
func unstructuredSet(object map[string]any, value any, path ...string) {
	for _, p := range path[:len(path)-1] {
		object = object[p].(map[string]any)
	}
	object[path[len(path)-1]] = value
}

// finish adds what is not of an object.
func (c *chart) finish(version string) error {
	c.values["serviceAccount"] = map[string]any{"annotations": map[string]any{}}
	c.values["crds"] = map[string]any{"install": true, "keep": true}
	c.values["networkPolicy"] = map[string]any{"enabled": true}
	c.values["podDisruptionBudget"] = map[string]any{"enabled": true}
	c.values["serviceMonitor"] = map[string]any{"enabled": false}
	values, err := yaml.Marshal(c.values)
	if err != nil {
		return err
	}
	about, err := yaml.Marshal(map[string]any{
		"apiVersion": "v2", "name": "leasecast", "version": strings.TrimPrefix(version, "v"), "appVersion": version,
		"description": "One leader cluster per namespace, among the clusters of a Cluster API management cluster",
		"type":        "application", "kubeVersion": ">=1.30.0-0", "home": "https://github.com/leasecast/leasecast",
	})
	if err != nil {
		return err
	}
	c.files["Chart.yaml"], c.files["values.yaml"] = about, values
	c.files["values.schema.json"] = schema
	c.files[filepath.Join("templates", "NOTES.txt")] = notes
	return nil
}

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// kindConfig is what the tests look at.
type kindConfig struct {
	Name                    string   `json:"name"`
	KubeadmConfigPatches    []string `json:"kubeadmConfigPatches"`
	ContainerdConfigPatches []string `json:"containerdConfigPatches"`
	Networking              struct {
		PodSubnet     string `json:"podSubnet"`
		ServiceSubnet string `json:"serviceSubnet"`
	} `json:"networking"`
	Nodes []struct {
		Role        string `json:"role"`
		ExtraMounts []struct {
			HostPath      string `json:"hostPath"`
			ContainerPath string `json:"containerPath"`
		} `json:"extraMounts"`
	} `json:"nodes"`
}

func read(t *testing.T, c cluster, acts string, cgroupV1 bool) kindConfig {
	t.Helper()
	raw := musttest.Get(os.ReadFile(filepath.Join("..", "..", "kind-configs", c.name+".yaml")))(t)
	full := config(raw, acts, cgroupV1)
	var k kindConfig
	musttest.Do(t, yaml.UnmarshalStrict(full, &struct {
		*kindConfig
		Kind       string `json:"kind"`
		APIVersion string `json:"apiVersion"`
	}{kindConfig: &k}))
	return k
}

func TestEachClusterHasItsOwnNameAndSubnets(t *testing.T) {
	seen := map[string]string{}
	for _, c := range all {
		k := read(t, c, "/acts", false)
		if k.Name != c.inKind() {
			t.Errorf("kind-configs/%s.yaml names %s, want %s", c.name, k.Name, c.inKind())
		}
		for _, subnet := range []string{k.Networking.PodSubnet, k.Networking.ServiceSubnet} {
			if other, taken := seen[subnet]; taken || subnet == "" {
				t.Errorf("%s has the subnet %q, and so has %q", c.name, subnet, other)
			}
			seen[subnet] = c.name
		}
		if len(k.KubeadmConfigPatches) > 0 {
			t.Errorf("%s was changed although this machine needs nothing: %+v", c.name, k)
		}
		// The hub's, too: it shows which checkout made the cluster.
		mounts := k.Nodes[0].ExtraMounts
		if len(mounts) != 1 || mounts[0].HostPath != "/acts" || mounts[0].ContainerPath != actsInNode {
			t.Errorf("%s has the mounts %+v, want the folder for its act logs", c.name, mounts)
		}
	}
}

func TestAKubeletOnCgroupV1IsConfiguredToAcceptIt(t *testing.T) {
	k := read(t, members[0], "", true)
	kubelet, containerd := k.KubeadmConfigPatches, k.ContainerdConfigPatches
	if len(kubelet) != 1 || !strings.Contains(kubelet[0], "failCgroupV1: false") {
		t.Errorf("patches of the kubelet %q", kubelet)
	}
	if len(containerd) != 1 || !strings.Contains(containerd[0], "SystemdCgroup = false") {
		t.Errorf("patches of containerd %q", containerd)
	}
}

// Otherwise the node's kubelet and its control plane differ.
func TestNodesAndOtherDrillsRunOneVersionOfKubernetes(t *testing.T) {
	version := func(file string) string {
		raw := musttest.Get(os.ReadFile(file))(t)
		for line := range strings.Lines(string(raw)) {
			if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "k8s.io/kubernetes" {
				return fields[1]
			}
		}
		t.Fatalf("%s requires no k8s.io/kubernetes", file)
		return ""
	}
	if a, b := version("node/go.mod"), version("../k8s/go.mod"); a != b {
		t.Errorf("e2e/kind/node has %s, e2e/k8s has %s", a, b)
	}
}

func TestAClusterOfAnotherCheckoutIsLeftAlone(t *testing.T) {
	programs := t.TempDir()
	musttest.Do(t, os.WriteFile(filepath.Join(programs, "docker"), []byte("#!/bin/sh\necho \"$FOLDER\"\n"), 0o700))
	t.Setenv("PATH", programs+":"+os.Getenv("PATH"))
	p := &place{out: t.TempDir()}
	musttest.Do(t, os.MkdirAll(p.acts(hub), 0o700))
	for name, c := range map[string]struct {
		folder string // for act logs, as Docker tells
		owned  bool   // by another checkout
	}{
		"made here":                   {p.acts(hub), false},
		"made elsewhere":              {t.TempDir(), true},
		"its checkout is gone":        {filepath.Join(t.TempDir(), "gone"), false},
		"its checkout cannot be read": {filepath.Join(programs, "docker", "below"), true},
		"there is none":               {"", false},
	} {
		t.Setenv("FOLDER", c.folder)
		if err := p.owned(t.Context(), hub); (err != nil) != c.owned {
			t.Errorf("%s: %v, want owned %t", name, err, c.owned)
		}
	}
}

const capiDocuments = `
{apiVersion: cert-manager.io/v1, kind: Issuer, metadata: {name: issuer}}
---
{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {name: certificate}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: crd}
spec: {conversion: {strategy: Webhook}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: mutating}
webhooks: [{name: a}, {name: b}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: manager}
spec: {template: {spec: {containers: [{image: theirs, command: [/manager]}]}}}
`

func TestManifestsOfClusterAPIWithoutCertManager(t *testing.T) {
	folder := t.TempDir()
	for name, content := range map[string]string{
		"kustomization.yaml": string(capiKustomization), "manifests.yaml": capiDocuments,
		"tls.crt": "authority", "tls.key": "key",
	} {
		musttest.Do(t, os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600))
	}
	out := musttest.Get(execute(t.Context(), nil, os.Getenv(harness.KustomizeVariable), "build", folder))(t)
	for want, times := range map[string]int{
		"cert-manager.io": 0, "caBundle: YXV0aG9yaXR5": 3, "tls.crt: YXV0aG9yaXR5": 1, "image: " + capiImage: 1, "theirs": 0,
		"- /capi-manager": 1, "kind: ": 4,
	} {
		if got := strings.Count(out, want); got != times {
			t.Errorf("the manifests have %q %d times, want %d:\n%s", want, got, times, out)
		}
	}
}

func fit() machine {
	return machine{os: "linux", name: "here", engine: "here",
		cgroupVersion: "2", securityOptions: []string{"name=seccomp,profile=default", "name=cgroupns"},
		inotifyInstances: 8192, freeMiB: 16000, stockImage: true}
}

func TestPreflightNamesEachMissingThingAndItsFix(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*machine)
		want   []string // none: nothing is missing
	}{
		"nothing is missing": {func(*machine) {}, nil},
		"another system":     {func(m *machine) { m.os = "darwin" }, []string{"runs darwin", "use Linux"}},
		"an engine elsewhere": {func(m *machine) { m.engine = "there" },
			[]string{"runs on there", "this is here", "DOCKER_HOST"}},
		"too few inotify instances": {func(m *machine) { m.inotifyInstances = 128 },
			[]string{"max_user_instances is 128", "sysctl fs.inotify"}},
		"too little memory":    {func(m *machine) { m.freeMiB = 2000 }, []string{"2000 MiB", "take 2800"}},
		"memory for what runs": {func(m *machine) { m.freeMiB, m.nodes = 500, 4 }, nil},
		"rootless": {func(m *machine) { m.securityOptions = []string{"name=rootless", "name=cgroupns"} },
			[]string{"rootless", "docker context"}},
		"no image":                    {func(m *machine) { m.stockImage = false }, []string{"make kind-node-image"}},
		"no image, but all nodes run": {func(m *machine) { m.stockImage, m.nodes = false, 4 }, nil},
		"our image":                   {func(m *machine) { m.stockImage, m.ownImage = false, true }, nil},
		"cgroup v1 with kind's image": {func(m *machine) { m.cgroupVersion = "1" },
			[]string{"does not start on cgroup v1", "make kind-node-image"}},
		"cgroup v1 with our image": {func(m *machine) { m.cgroupVersion, m.ownImage = "1", true }, nil},
		"cgroup v1 without namespaces": {func(m *machine) {
			m.cgroupVersion, m.ownImage, m.securityOptions = "1", true, nil
		}, []string{"--default-cgroupns-mode private"}},
		"two things": {func(m *machine) { m.os, m.inotifyInstances = "darwin", 128 }, []string{"use Linux", "sysctl"}},
	} {
		m := fit()
		c.change(&m)
		err := m.lacks()
		if (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range c.want {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v does not say %q", name, err, want)
			}
		}
	}
}

func TestWithoutDockerTheFixIsNamed(t *testing.T) {
	t.Setenv("DOCKER_HOST", "unix://"+t.TempDir()+"/none.sock")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for name, command := range map[string]func(context.Context, *place){
		"up": up, "down": down, "stock": stock, "ready": ready,
		"drill": func(ctx context.Context, p *place) { drill(ctx, p, 1) },
	} {
		t.Chdir(t.TempDir())
		err := must.Try(func() { command(ctx, &place{}) })
		if err == nil || !strings.Contains(err.Error(), "install and start Docker") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

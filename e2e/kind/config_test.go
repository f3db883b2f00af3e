package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/leasecast/leasecast/e2e/harness"
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
	raw := harness.Get(os.ReadFile(filepath.Join("..", "..", "kind-configs", c.name+".yaml")))(t)
	full := config(raw, acts, cgroupV1)
	var k kindConfig
	harness.Must(t, yaml.UnmarshalStrict(full, &struct {
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
		if len(k.KubeadmConfigPatches) > 0 || len(k.Nodes[0].ExtraMounts) != 1 {
			t.Errorf("%s was changed although this machine needs nothing: %+v", c.name, k)
		}
	}
}

// The hub's too: it tells which checkout made the cluster.
func TestEachClusterHasAFolderForActLogs(t *testing.T) {
	for _, c := range all {
		mounts := read(t, c, "/somewhere/acts", false).Nodes[0].ExtraMounts
		if len(mounts) != 1 || mounts[0].HostPath != "/somewhere/acts" || mounts[0].ContainerPath != actsInNode {
			t.Errorf("%s has the mounts %+v", c.name, mounts)
		}
	}
}

func TestAKubeletOnCgroupV1IsToldToAcceptIt(t *testing.T) {
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
		raw := harness.Get(os.ReadFile(file))(t)
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

package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const (
	ownModule  = "github.com/leasecast/leasecast"
	capiModule = "sigs.k8s.io/cluster-api"

	// clusterctlLabel marks the CRDs whose objects clusterctl moves. clusterctl adds it when it
	// installs them; in the module they are without.
	clusterctlLabel = "clusterctl.cluster.x-k8s.io"
)

// loadCRDs reads the CRDs of the hub: Cluster API's, and ours if they are wanted. It works within the repository only.
func loadCRDs(ctx context.Context, ours bool) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	capi, err := capiCRDs(ctx)
	if err != nil || !ours {
		return capi, err
	}
	own, err := readCRDs(ctx, ownModule, "config/crd/bases")
	return append(capi, own...), err
}

func capiCRDs(ctx context.Context) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	crds, err := readCRDs(ctx, capiModule, "core/config/crd/bases")
	for _, crd := range crds {
		metav1.SetMetaDataLabel(&crd.ObjectMeta, clusterctlLabel, "")
	}
	return crds, err
}

// InstallCAPI creates Cluster API's CRDs in a member, and returns when it serves all of them.
func (s *Server) InstallCAPI(ctx context.Context) error {
	crds, err := capiCRDs(ctx)
	if err != nil {
		return err
	}
	return installCRDs(s, crds)
}

// readCRDs reads the CRDs in a folder of a module.
func readCRDs(ctx context.Context, module, folder string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	root, err := moduleDir(ctx, module)
	if err != nil {
		return nil, err
	}
	o := envtest.CRDInstallOptions{Paths: []string{filepath.Join(root, folder)}, ErrorIfPathMissing: true}
	if err := envtest.ReadCRDFiles(&o); err != nil {
		return nil, fmt.Errorf("read the CRDs of %s: %w", module, err)
	}
	return o.CRDs, nil
}

// moduleDir asks the go command, which knows the versions that go.mod pins.
func moduleDir(ctx context.Context, module string) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return "", fmt.Errorf("go list -m %s: %w: %s", module, err, bytes.TrimSpace(exit.Stderr))
	}
	if err != nil {
		return "", fmt.Errorf("go list -m %s: %w", module, err)
	}
	dir := string(bytes.TrimSpace(out))
	if dir == "" {
		return "", fmt.Errorf("module %s is not downloaded: run `go mod download %s`", module, module)
	}
	return dir, nil
}

// installCRDs creates the CRDs and returns when the server serves all of them.
func installCRDs(s *Server, crds []*apiextensionsv1.CustomResourceDefinition) error {
	_, err := envtest.InstallCRDs(s.AdminConfig(), envtest.CRDInstallOptions{CRDs: crds, MaxTime: startTimeout})
	return err
}

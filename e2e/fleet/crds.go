package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

const (
	ownModule  = "github.com/leasecast/leasecast"
	capiModule = "sigs.k8s.io/cluster-api"

	// clusterctlLabel marks the CRDs whose objects clusterctl moves. clusterctl adds it when it
	// installs them; in the module they are without.
	clusterctlLabel = "clusterctl.cluster.x-k8s.io"
)

// loadCRDs reads the CRDs of the hub.
func loadCRDs(ctx context.Context, o Options) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	capi, err := readCRDs(ctx, o.CAPICRDs, capiModule, "core/config/crd/bases")
	if err != nil {
		return nil, err
	}
	for _, crd := range capi {
		metav1.SetMetaDataLabel(&crd.ObjectMeta, clusterctlLabel, "")
	}
	own, err := readCRDs(ctx, o.CRDs, ownModule, "config/crd/bases")
	if err != nil {
		return nil, err
	}
	return append(capi, own...), nil
}

// moduleDir asks the go command, which knows the versions that go.mod pins.
func moduleDir(ctx context.Context, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module)
	out, err := cmd.Output()
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

// readCRDs reads the CRDs of a folder, one per file. By default it is a folder of a module.
func readCRDs(
	ctx context.Context, dir, module, folder string,
) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	if dir == "" {
		root, err := moduleDir(ctx, module)
		if err != nil {
			return nil, fmt.Errorf("find CRDs (outside the repository, name their folders in Options): %w", err)
		}
		dir = filepath.Join(root, folder)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("list the CRDs of %s: %w", dir, err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("there are no CRDs in %s", dir)
	}
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read a CRD: %w", err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(content, crd); err != nil {
			return nil, fmt.Errorf("read the CRD in %s: %w", file, err)
		}
		if crd.Kind != "CustomResourceDefinition" {
			return nil, fmt.Errorf("%s holds a %q, not a CustomResourceDefinition", file, crd.Kind)
		}
		crds = append(crds, crd)
	}
	return crds, nil
}

// installCRDs creates the CRDs and returns when the server serves all of them.
func installCRDs(ctx context.Context, s *Server, crds []*apiextensionsv1.CustomResourceDefinition) error {
	scheme := runtime.NewScheme()
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	admin, err := s.adminClient(scheme)
	if err != nil {
		return err
	}
	for _, crd := range crds {
		if err := admin.Create(ctx, crd.DeepCopy()); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create CRD %s: %w", crd.Name, err)
		}
	}
	for _, crd := range crds {
		if err := awaitServed(ctx, admin, crd.Name); err != nil {
			return fmt.Errorf("CRD %s is not served: %w", crd.Name, err)
		}
	}
	return nil
}

func awaitServed(ctx context.Context, admin client.Client, name string) error {
	return wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := admin.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
			return false, err
		}
		for _, condition := range crd.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return true, nil
			}
		}
		return false, nil
	})
}

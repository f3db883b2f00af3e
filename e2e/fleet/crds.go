package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// ModuleDir returns the folder of a module that go.mod requires. It works within the repository only.
func ModuleDir(ctx context.Context, module string) (string, error) {
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("go list -m %s: %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// InstallCAPI creates Cluster API's CRDs, and returns when the server serves them. Like clusterctl, it labels the CRDs
// whose objects clusterctl moves.
func (s *Server) InstallCAPI(ctx context.Context) error {
	return s.installCRDs(ctx, "sigs.k8s.io/cluster-api", "core/config/crd/bases", "clusterctl.cluster.x-k8s.io")
}

// installOwn creates the CRDs of this repository, and returns when the server serves them.
func (s *Server) installOwn(ctx context.Context) error {
	return s.installCRDs(ctx, "github.com/leasecast/leasecast", "config/crd/bases")
}

func (s *Server) installCRDs(ctx context.Context, module, folder string, labels ...string) error {
	root, err := ModuleDir(ctx, module)
	files := envtest.CRDInstallOptions{Paths: []string{filepath.Join(root, folder)}, ErrorIfPathMissing: true,
		MaxTime: startTimeout}
	if err := errors.Join(err, envtest.ReadCRDFiles(&files)); err != nil {
		return fmt.Errorf("read the CRDs of %s: %w", module, err)
	}
	for _, crd := range files.CRDs {
		for _, label := range labels {
			metav1.SetMetaDataLabel(&crd.ObjectMeta, label, "")
		}
	}
	files.Paths = nil
	_, err = envtest.InstallCRDs(s.AdminConfig(), files)
	return err
}

package harness

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/e2e/fleet"
	webappv1 "github.com/leasecast/leasecast/e2e/guestbook/api"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/process"
)

const (
	// guestbookName is the name of the service account, by guestbook.yaml, and guestbookHome its namespace.
	guestbookName = "guestbook"
	guestbookHome = "guestbook-system"
	// separator ends a document of guestbook.yaml.
	separator = "---\n"
	// servedPatience bounds the wait for a CRD to be served.
	servedPatience = 30 * time.Second
)

// Guestbook is a guestbook process in one member.
type Guestbook struct {
	*process.Process
	// Acts is what this process and its predecessors did.
	Acts *ActLog

	start func() (*process.Process, error)
}

// Kill ends the process at once. Its open acts end with it.
func (g *Guestbook) Kill() error {
	return errors.Join(g.Process.Kill(), g.Acts.Ended(Now().Boot))
}

//go:embed guestbook.yaml
var guestbookManifest string

// installGuestbook creates the CRD, the service account with its rights, and a guestbook in each namespace. It writes a
// kubeconfig file for the account, straight at the API server: a controller lives in the member.
func installGuestbook(ctx context.Context, c client.Client, s *fleet.Server, namespaces []string, dir string) (
	kubeconfig string) {
	home, work, _ := strings.Cut(guestbookManifest, "# In each namespace that it works in.\n")
	documents := strings.Split(home, separator)
	for _, namespace := range namespaces {
		documents = append(documents, strings.Split(strings.ReplaceAll(work, "NAMESPACE", namespace), separator)...)
	}
	for _, document := range append([]string{string(webappv1.CRD)}, documents...) {
		object := &unstructured.Unstructured{}
		must.Do(yaml.Unmarshal([]byte(document), &object.Object), "manifest of the guestbook")
		what := fmt.Sprintf("%s %s is in %s", object.GetKind(), client.ObjectKeyFromObject(object), s.Name())
		must.Do(must.Await(ctx, servedPatience, what, func(ctx context.Context) error { // until the CRD is served
			return client.IgnoreAlreadyExists(c.Create(ctx, object))
		}))
	}
	config := must.Get(s.TokenConfig(ctx, guestbookHome, guestbookName))
	kubeconfig = filepath.Join(dir, "guestbook-"+s.Name()+".kubeconfig")
	must.Do(fleet.WriteKubeconfig(kubeconfig, s.Name(), config))
	return kubeconfig
}

// startGuestbook starts the process. Its acts go to the file <member>.acts.
func startGuestbook(p Programs, m Member, kubeconfig string, o Options) *Guestbook {
	file, register := filepath.Join(o.Dir, m.Name+".acts"), ""
	if o.Register {
		register = guestbookHome
	}
	start := func() (*process.Process, error) {
		return process.Start("guestbook in "+m.Name, filepath.Join(o.Dir, "guestbook-"+m.Name+".log"), p.Guestbook,
			"-kubeconfig="+kubeconfig,
			"-cluster="+m.Name,
			"-namespaces="+strings.Join(m.Namespaces, ","),
			"-acts="+file,
			"-act-every="+o.ActEvery.String(),
			"-max-clock-skew="+o.Timings.Skew.String(),
			"-register="+register)
	}
	return &Guestbook{Process: must.Get(start()), Acts: NewActLog(file), start: start}
}

package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/validation"
)

// These environment variables name folders of binaries: those of all servers, and, where they are set, those of the hub
// and of the last member. So the same tests and drills run on a fleet of different versions (make versions).
const (
	AssetsVariable           = "KUBEBUILDER_ASSETS"
	HubAssetsVariable        = AssetsVariable + "_HUB"
	LastMemberAssetsVariable = AssetsVariable + "_LAST_MEMBER"
)

// startTimeout bounds every start, of a fleet or of a server. On a busy machine with two cores a
// start takes several times the usual 5 s.
const startTimeout = 2 * time.Minute

// hubName is the name of the hub's server among the servers of a fleet.
const hubName = "hub"

// Options say what fleet to start.
type Options struct {
	// Members are the names of the members: distinct DNS labels, not "hub". A fleet may have none.
	Members []string
	// Uninstalled leaves our CRDs out of the hub: an installation is to make them.
	Uninstalled bool
	// Audit has each API server log every write: see [Server.Writes].
	Audit bool
	// AuditReads has it log every request: see [Server.Requests].
	AuditReads bool
	// APIServerFlags are given to each API server besides what it needs.
	APIServerFlags []string
	// Progress, if set, gets a line for each step, one call at a time.
	Progress func(line string)
}

// Fleet is a running hub and its members. Its methods may be called from any goroutine.
type Fleet struct {
	nest    *nest
	dir     *workDir
	hub     *Server
	members []*Server
	stop    sync.Once
	stopErr error
}

// Start starts a fleet and returns when every server is ready, with the CRDs in the hub. ctx, and a
// limit of two minutes, bound the start only: the fleet runs until Stop. An error names the server that failed and
// shows the end of its log; then nothing is left running.
func Start(ctx context.Context, o Options) (*Fleet, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	progress := serialized(o.Progress)
	assets, err := assetsOf(o.Members)
	if err != nil {
		return nil, err
	}
	if err := validate(o.Members); err != nil {
		return nil, err
	}
	crds, err := loadCRDs(ctx, !o.Uninstalled)
	if err != nil {
		return nil, err
	}
	f, err := prepare(o, assets)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	group, groupCtx := errgroup.WithContext(ctx)
	for _, s := range f.Servers() {
		group.Go(func() error {
			if err := s.start(groupCtx); err != nil {
				return err
			}
			if s == f.hub {
				if err := installCRDs(s, crds); err != nil {
					return fmt.Errorf("hub: %w", err)
				}
			}
			progress(fmt.Sprintf("%s is ready after %.1f s", s.name, time.Since(begin).Seconds()))
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the fleet: %w", err), f.Stop())
	}
	return f, nil
}

// prepare makes the servers without starting them.
func prepare(o Options, assets map[string]string) (*Fleet, error) {
	dir, err := newWorkDir()
	if err != nil {
		return nil, err
	}
	f := &Fleet{dir: dir, nest: &nest{}}
	for _, name := range append([]string{hubName}, o.Members...) {
		s, err := newServer(name, dir.path, assets[name], f.nest, o)
		if err != nil {
			return nil, errors.Join(err, f.Stop())
		}
		if f.hub == nil {
			f.hub = s
			continue
		}
		f.members = append(f.members, s)
	}
	return f, nil
}

// Stop kills all servers, paused ones too, and removes their files: nothing of a fleet is worth
// an orderly end. It returns when all is gone. Later calls return what the first one did.
func (f *Fleet) Stop() error {
	f.stop.Do(func() {
		errs := []error{f.nest.close()}
		for _, s := range f.Servers() {
			errs = append(errs, s.release())
		}
		f.stopErr = errors.Join(append(errs, f.dir.remove())...)
	})
	return f.stopErr
}

// Hub is the server of the management cluster.
func (f *Fleet) Hub() *Server { return f.hub }

// Members are the members' servers in the order of [Options].
func (f *Fleet) Members() []*Server { return slices.Clone(f.members) }

// Member is the member of that name. It panics if the fleet was started without one: the names are
// in the same test.
func (f *Fleet) Member(name string) *Server {
	for _, s := range f.members {
		if s.name == name {
			return s
		}
	}
	panic(fmt.Sprintf("fleet: there is no member %q", name))
}

// Servers are the hub and the members.
func (f *Fleet) Servers() []*Server {
	if f.hub == nil {
		return nil
	}
	return append([]*Server{f.hub}, f.members...)
}

// assetsOf returns the folder of each server's binaries, by its name.
func assetsOf(members []string) (map[string]string, error) {
	all := map[string]string{}
	for i, name := range append([]string{hubName}, members...) {
		variable := AssetsVariable
		switch {
		case i == 0 && os.Getenv(HubAssetsVariable) != "":
			variable = HubAssetsVariable
		case i == len(members) && i > 0 && os.Getenv(LastMemberAssetsVariable) != "":
			variable = LastMemberAssetsVariable
		}
		dir, err := findAssets(variable)
		if err != nil {
			return nil, err
		}
		all[name] = dir
	}
	return all, nil
}

func findAssets(variable string) (string, error) {
	dir := os.Getenv(variable)
	if dir == "" {
		return "", fmt.Errorf("%s is not set: it must name the folder of etcd, kube-apiserver and "+
			"kube-controller-manager, which `make k8s` builds", variable)
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("%s=%s holds no %s (`make k8s` builds it): %w", variable, dir, name, err)
		}
	}
	return dir, nil
}

func validate(members []string) error {
	for i, name := range members {
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			return fmt.Errorf("member name %q: %s", name, strings.Join(problems, "; "))
		}
		if name == hubName || slices.Contains(members[:i], name) {
			return fmt.Errorf("member name %q is taken", name)
		}
	}
	return nil
}

func serialized(progress func(string)) func(string) {
	var mu sync.Mutex
	return func(line string) {
		if progress == nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		progress(line)
	}
}

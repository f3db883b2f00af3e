package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasecast/leasecast/e2e/must"
)

// These environment variables name folders of binaries: those of all servers, and, where they are set, those of the hub
// and of the last member. So the same tests and drills run on a fleet of different versions (make versions).
const (
	AssetsVariable           = "KUBEBUILDER_ASSETS"
	HubAssetsVariable        = AssetsVariable + "_HUB"
	LastMemberAssetsVariable = AssetsVariable + "_LAST_MEMBER"
)

// startTimeout bounds every start, of a fleet or of a server. On a busy machine with two cores a start takes several
// times the usual 5 s.
const startTimeout = 2 * time.Minute

const hubName = "hub"

// Options describe a fleet.
type Options struct {
	// Members are the names of the members: distinct DNS labels, not "hub". A fleet may have none.
	Members []string
	// Uninstalled leaves our CRDs out of the hub: an installation is to create them.
	Uninstalled bool
	// Audit has each API server log every request: see [Server.Requests].
	Audit bool
	// APIServerFlags are given to each API server besides what it needs.
	APIServerFlags []string
	// Progress, if set, gets a line when the fleet is ready.
	Progress func(line string)
}

// Fleet is a running hub and its members. Its methods may be called from any goroutine.
type Fleet struct {
	dir     *workDir
	hub     *Server
	members []*Server
	stop    func() error
}

// Start starts a fleet and returns when every server is ready, with the CRDs in the hub. The fleet runs until Stop: ctx
// and a limit of two minutes bound the start only. An error names the server that failed and shows the end of its log;
// then nothing is left running.
func Start(ctx context.Context, o Options) (*Fleet, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	dir, err := newWorkDir()
	if err != nil {
		return nil, err
	}
	f := &Fleet{dir: dir}
	f.stop = sync.OnceValue(f.end)
	begin := time.Now()
	if err := must.Try(func() { f.start(ctx, o) }); err != nil {
		return nil, errors.Join(fmt.Errorf("start the fleet: %w", err), f.Stop())
	}
	if o.Progress != nil {
		o.Progress(fmt.Sprintf("hub %v are ready after %.1f s", o.Members, time.Since(begin).Seconds()))
	}
	return f, nil
}

func (f *Fleet) start(ctx context.Context, o Options) {
	for i, name := range append([]string{hubName}, o.Members...) {
		s := newServer(name, f.dir.path, must.Get(assetsOf(i, len(o.Members))), o)
		if i == 0 {
			f.hub = s
		} else {
			f.members = append(f.members, s)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, s := range f.Servers() {
		group.Go(func() error {
			return must.Try(func() {
				must.Do(s.start(ctx))
				if s == f.hub {
					must.Do(s.InstallCAPI(ctx))
				}
				if s == f.hub && !o.Uninstalled {
					must.Do(s.installOwn(ctx))
				}
			})
		})
	}
	must.Do(group.Wait())
}

// Stop kills all servers, paused ones too, and removes their files. It returns when all is gone. Later calls return the
// result of the first one.
func (f *Fleet) Stop() error { return f.stop() }

func (f *Fleet) end() error {
	var errs []error
	for _, s := range f.Servers() {
		errs = append(errs, s.close())
	}
	return errors.Join(append(errs, f.dir.remove())...)
}

// Hub is the server of the management cluster.
func (f *Fleet) Hub() *Server { return f.hub }

// Members are the members' servers in the order of [Options].
func (f *Fleet) Members() []*Server { return slices.Clone(f.members) }

// Member is the member of that name. It panics if the fleet has none.
func (f *Fleet) Member(name string) *Server {
	return f.members[slices.IndexFunc(f.members, func(s *Server) bool { return s.name == name })]
}

// Servers are the hub and the members.
func (f *Fleet) Servers() []*Server {
	if f.hub == nil {
		return nil
	}
	return append([]*Server{f.hub}, f.members...)
}

// assetsOf returns the folder of the binaries of the i-th server: the hub is the first one, the members follow.
func assetsOf(i, members int) (string, error) {
	dir := os.Getenv(AssetsVariable)
	switch i {
	case 0:
		dir = cmp.Or(os.Getenv(HubAssetsVariable), dir)
	case members:
		dir = cmp.Or(os.Getenv(LastMemberAssetsVariable), dir)
	}
	if _, err := os.Stat(filepath.Join(dir, "kube-apiserver")); err != nil {
		return "", fmt.Errorf("%s must name the folder of the control plane's binaries: run `make k8s`: %w",
			AssetsVariable, err)
	}
	return dir, nil
}

package hub

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/pprof"
	"time"

	utilclock "k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/leasecast/leasecast/hub/controller"
)

const (
	// CasesPath is where the metrics port serves what decisions on the fleet ?namespace= rest on: one JSON text a line,
	// each a [decide.Case].
	CasesPath = "/leasecast/cases"
	// VersionHeader is the header of that answer with the version of the hub.
	VersionHeader = "Leasecast-Version"
	// CasesAccount is the account in the hub's namespace that may get them (config/rbac).
	CasesAccount = "leasecast-what-if"
	// debugPath is the prefix of the other paths. API servers have a /debug of their own.
	debugPath = "/leasecast"
	// casesTimeout bounds how long the cases of a fleet are collected.
	casesTimeout = 20 * time.Second
)

// addDebugging serves profiles, the log's verbosity and the cases of fleets at the metrics port, whose filter asks who
// may get or put each path.
func addDebugging(local manager.Manager, o Options, cases casesFunc) (err error) {
	for path, handler := range debugging(o, cases) {
		err = errors.Join(err, local.AddMetricsServerExtraHandler(path, handler))
	}
	return err
}

// debugging returns the handlers by their paths.
func debugging(o Options, cases casesFunc) map[string]http.Handler {
	one := make(chan struct{}, 1)
	handlers := map[string]http.Handler{
		CasesPath: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case one <- struct{}{}:
				defer func() { <-one }()
				serveCases(w, r, o.Version, cases)
			default:
				http.Error(w, "another client reads cases: try again in some seconds", http.StatusTooManyRequests)
			}
		}),
	}
	for path, handler := range map[string]http.HandlerFunc{
		"/debug/pprof/": pprof.Index, "/debug/pprof/cmdline": pprof.Cmdline, "/debug/pprof/profile": pprof.Profile,
		"/debug/pprof/symbol": pprof.Symbol, "/debug/pprof/trace": pprof.Trace, "/debug/verbosity": o.Verbosity,
	} {
		if handler != nil {
			handlers[debugPath+path] = http.StripPrefix(debugPath, handler)
		}
	}
	return handlers
}

// casesFunc is [controller.Controller.Cases].
type casesFunc func(ctx context.Context, fleet string, yield func(json.RawMessage) error) error

func serveCases(w http.ResponseWriter, r *http.Request, version string, cases casesFunc) {
	ctx, cancel := context.WithTimeout(r.Context(), casesTimeout)
	defer cancel()
	// A client that does not read must not keep others out. Only a recorder of a test has no deadline.
	_ = http.NewResponseController(w).SetWriteDeadline(utilclock.RealClock{}.Now().Add(2 * casesTimeout))
	w.Header().Set(VersionHeader, version)
	begun := false
	err := cases(ctx, r.URL.Query().Get("namespace"), func(is json.RawMessage) error {
		begun = true
		_, err := w.Write(append(is, '\n'))
		return err
	})
	switch {
	case begun: // whoever asks counts what is missing
	case errors.Is(err, controller.ErrStandby):
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

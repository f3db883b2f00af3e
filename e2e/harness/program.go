package harness

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/leasecast/leasecast/e2e/must"
)

// Quiet silences the libraries, which would report every server that a program breaks on purpose.
func Quiet() {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
}

// Logs has the libraries log errors, or everything.
func Logs(everything bool) {
	level := zapcore.ErrorLevel
	if everything {
		level = zapcore.DebugLevel
	}
	logger := zap.New(zap.UseDevMode(true), zap.Level(level))
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
}

// WriteReport writes a report as JSON into a file, whose folder it creates if need be.
func WriteReport(file string, report any) error {
	return must.Try(func() {
		raw := must.Get(json.MarshalIndent(report, "", "  "))
		must.Do(os.MkdirAll(filepath.Dir(file), 0o755))
		must.Do(os.WriteFile(file, append(raw, '\n'), 0o644))
	})
}

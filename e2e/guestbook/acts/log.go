// Package acts records what a controller really does: a line before each act and a
// line after it, on a clock that all processes of one machine share. So a drill can
// judge who acted when without believing anybody's opinion about who led.
package acts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock"
	"github.com/leasecast/leasecast/e2e/lines"
	"github.com/leasecast/leasecast/member"
)

// Phase says whether a line comes before or after its act.
type Phase string

// The two lines of an act.
const (
	Before Phase = "before"
	After  Phase = "after"
)

// Result of an act, beside the error of one that failed.
const (
	// OK says that it succeeded.
	OK = "ok"
	// NotBegun says that between its two lines it was refused, because its term was over.
	NotBegun = "not begun"
)

// Line is one line of an act log, as JSON.
type Line struct {
	// At is when the line was made, in nanoseconds since the machine booted (suspend
	// included, CLOCK_BOOTTIME; read to within 50 µs). The line before an act is made
	// before it is asked whether the act may begin, the line after it once it is over:
	// question and act lie between the two.
	At time.Duration `json:"at"`
	// ID identifies an act in its log.
	ID        int64  `json:"id"`
	Cluster   string `json:"cluster"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Epoch is the term that the act belongs to.
	Epoch int64 `json:"epoch"`
	// Act is what is done: print or write.
	Act   string `json:"act"`
	Phase Phase  `json:"phase"`
	// Result is only in the line after: OK, NotBegun or the error.
	Result string `json:"result,omitempty"`
}

// Log writes the acts of one process. It is safe for concurrent use.
type Log struct {
	cluster string
	clock   lease.Clock

	mu     sync.Mutex
	out    *lines.Writer
	lastID int64
}

// NewLog returns a Log of the acts of a cluster. It is the only writer of out while
// it is used. Each line is one Write to out, so a
// file needs no flushing, and no line of a process that is killed is lost.
func NewLog(cluster string, out io.Writer) *Log {
	return &Log{cluster: cluster, clock: &clock.System{}, out: lines.NewWriter(out)}
}

// Do does an act between its two lines. The epoch comes from ctx. An act that asks
// member.Check first, within do, is judged by the instant of that question. If the line
// before cannot be written the act is not done: what nobody can judge must not
// happen.
func (l *Log) Do(ctx context.Context, act, namespace, name string, do func() error) error {
	after, err := l.begin(ctx, act, namespace, name)
	if err != nil {
		return err
	}
	err = do()
	after(result(err))
	return err
}

func result(err error) string {
	switch {
	case err == nil:
		return OK
	case errors.Is(err, member.ErrNotBegun):
		return NotBegun
	default:
		return err.Error()
	}
}

// begin writes the line before an act, and returns what writes the one after it.
// That one may get lost without harm: then the act counts as never having ended.
func (l *Log) begin(ctx context.Context, act, namespace, name string) (after func(result string), err error) {
	line := Line{Cluster: l.cluster, Namespace: namespace, Name: name, Act: act, Phase: Before}
	line.Epoch, _ = member.EpochFrom(ctx)
	if err := l.write(&line); err != nil {
		return nil, fmt.Errorf("act log: %w", err)
	}
	return func(result string) {
		line.Phase, line.Result = After, result
		_ = l.write(&line)
	}, nil
}

func (l *Log) write(line *Line) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if line.Phase == Before {
		l.lastID++
		line.ID = l.lastID
	}
	line.At = l.clock.Now().Boot
	return l.out.Write(line)
}

// Writes records, as acts, the writes to Kubernetes that are done in a term. Put it
// on a client's configuration after member.CapWrites, so that what that refuses lies
// between the two lines: cfg.Wrap(log.Writes).
func (l *Log) Writes(next http.RoundTripper) http.RoundTripper { return &recorder{l, next} }

type recorder struct {
	log  *Log
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	_, gated := member.EpochFrom(req.Context())
	if !gated || req.Method == http.MethodGet {
		return r.next.RoundTrip(req)
	}
	namespace, name := target(req.URL.Path)
	after, err := r.log.begin(req.Context(), "write", namespace, name)
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // as a RoundTripper must, also on errors
		}
		return nil, err
	}
	resp, err := r.next.RoundTrip(req)
	if err == nil && resp.StatusCode >= http.StatusBadRequest {
		after(resp.Status)
	} else {
		after(result(err))
	}
	return resp, err
}

// WrappedRoundTripper lets the library see member.CapWrites below.
func (r *recorder) WrappedRoundTripper() http.RoundTripper { return r.next }

// target returns the namespace and the name in a path of the Kubernetes API.
func target(path string) (namespace, name string) {
	_, rest, _ := strings.Cut(path, "/namespaces/")
	parts := strings.Split(rest, "/") // namespace, resource, name, subresource
	if len(parts) > 2 {
		name = parts[2]
	}
	return parts[0], name
}

// suffix is that of the names of act logs in a folder.
const suffix = ".acts"

// Create creates the act log of this process in a shared folder. The process holds a lock on it until it ends: see
// [Ended].
func Create(folder string) (*os.File, error) {
	file, err := os.CreateTemp(folder, ".guestbook-*")
	if err != nil {
		return nil, err
	}
	// It gets its name when it is locked, so that nobody takes a new log for that of a process that has ended.
	made := filepath.Join(folder, strings.TrimPrefix(filepath.Base(file.Name()), ".")+suffix)
	err = errors.Join(file.Chmod(0o644), syscall.Flock(int(file.Fd()), syscall.LOCK_EX), os.Rename(file.Name(), made))
	if err != nil {
		return nil, errors.Join(err, file.Close(), os.Remove(file.Name()))
	}
	return file, nil
}

// Logs are the act logs in a folder.
func Logs(folder string) ([]string, error) { return filepath.Glob(filepath.Join(folder, "*"+suffix)) }

// Ended reports whether the process that made an act log with [Create] has ended, also in a container of this machine.
func Ended(log string) (bool, error) {
	file, err := os.Open(log)
	if err != nil {
		return false, err
	}
	defer func() { _ = file.Close() }()
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		return false, nil
	default:
		return false, fmt.Errorf("lock of %s: %w", log, err)
	}
}

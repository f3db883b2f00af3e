package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leasecast/leasecast/e2e/guestbook/acts"
	"github.com/leasecast/leasecast/e2e/lines"
	"github.com/leasecast/leasecast/e2e/must"
)

// Act is one act of a guestbook process. Begin and End are a closed interval on the boot clock around it.
type Act struct {
	Cluster, Namespace, Object string
	// Epoch is the term that the process believed to act in.
	Epoch int64
	// Begin and End are boot readings. End is Unfinished until the log contains the end.
	Begin, End time.Duration
	// What was done, and its result: acts.OK or an error. Result is empty while unfinished.
	What, Result string
}

// Unfinished is the End of an act whose end is not logged: it may go on forever. A killed process leaves such acts; see
// [Guestbook.Kill].
const Unfinished = time.Duration(1<<63 - 1)

// ActLog follows the act log of one process. It is safe for concurrent use.
type ActLog struct {
	mu   sync.Mutex
	file *lines.File
	acts []Act         // in the order of their first lines
	open map[int64]int // by the ID of the act: its index in acts
}

// NewActLog follows the file, which need not exist yet.
func NewActLog(path string) *ActLog {
	return &ActLog{file: lines.Follow(path), open: map[int64]int{}}
}

// Acts returns all acts so far, in the order in which they began, without those that were refused before they began. An
// unfinished last line is left for the next call.
func (l *ActLog) Acts() ([]Act, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.file.News(l.addLocked)
	return slices.DeleteFunc(slices.Clone(l.acts), func(a Act) bool { return a.Result == acts.NotBegun }), err
}

// Ended ends all open acts at the instant, when the process was gone.
func (l *ActLog) Ended(at time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.file.News(l.addLocked)
	for _, i := range l.open {
		l.acts[i].End, l.acts[i].Result = at, "the process ended"
	}
	clear(l.open)
	return err
}

func (l *ActLog) addLocked(raw []byte) error {
	var line acts.Line
	if err := json.Unmarshal(raw, &line); err != nil {
		return err
	}
	i, open := l.open[line.ID]
	switch {
	case line.Phase == acts.Before && !open:
		l.open[line.ID] = len(l.acts)
		l.acts = append(l.acts, Act{
			Cluster: line.Cluster, Namespace: line.Namespace, Object: line.Name,
			Epoch: line.Epoch, Begin: line.At, End: Unfinished, What: line.Act,
		})
	case line.Phase == acts.After && open:
		l.acts[i].End, l.acts[i].Result = line.At, line.Result
		delete(l.open, line.ID)
	default:
		return fmt.Errorf("line %q of act %d has no partner", line.Phase, line.ID)
	}
	return nil
}

// AwaitAct returns the first act that matches, as soon as it has begun.
func (d *Drill) AwaitAct(ctx context.Context, limit time.Duration, what string, match func(Act) bool) (first Act,
	err error) {
	err = d.Await(ctx, limit, what, func(context.Context) (err error) {
		first, err = FirstAct(d.Acts, match)
		return err
	})
	return first, err
}

// FirstAct is the first act in the logs that matches, or an error if there is none yet.
func FirstAct(logs func() ([]Act, error), match func(Act) bool) (first Act, err error) {
	acts, err := logs()
	if err != nil {
		return first, err
	}
	err = errors.New("no such act")
	for _, a := range acts {
		if match(a) && (err != nil || a.Begin < first.Begin) {
			first, err = a, nil
		}
	}
	return first, err
}

// AwaitEligible returns when the records of the namespaces report the cluster as eligible.
func (d *Drill) AwaitEligible(ctx context.Context, limit time.Duration, cluster string, namespaces ...string) error {
	return d.Await(ctx, limit, cluster+" is eligible", func(ctx context.Context) error {
		for _, namespace := range namespaces {
			must.Do(d.Eligible(ctx, namespace, cluster))
		}
		return nil
	})
}

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/process"
)

// writeCounter counts the hub's writes at every API server: all writes that the server itself counted, less those
// of Leases which the hub does not publish. These are the hub's own election and the API server's
// announcement of itself, and a watch counts them. Whatever else writes would count as the hub's; in this fleet nothing does.
type writeCounter struct {
	drill  *harness.Drill
	leases map[string]*harness.Watch[*coordinationv1.Lease] // by server
}

// writeCount is the count of one server at an instant.
type writeCount struct {
	at     time.Duration
	writes float64
}

func (c writeCount) rateSince(o writeCount) float64 {
	return (c.writes - o.writes) / (c.at - o.at).Seconds()
}

func newWriteCounter(ctx context.Context, d *harness.Drill) (*writeCounter, error) {
	c := &writeCounter{drill: d, leases: map[string]*harness.Watch[*coordinationv1.Lease]{}}
	for _, s := range d.Fleet.Servers() {
		admin := d.Hub
		if s != d.Fleet.Hub() {
			admin = d.Members[s.Name()]
		}
		w, err := harness.Observe(ctx, admin, &coordinationv1.LeaseList{}, &coordinationv1.Lease{}, unpublished)
		if err != nil {
			c.stop()
			return nil, fmt.Errorf("leases of %s: %w", s.Name(), err)
		}
		c.leases[s.Name()] = w
	}
	return c, nil
}

// unpublished selects the Leases that nobody has published.
var unpublished = client.MatchingLabelsSelector{Selector: notManaged()}

func (c *writeCounter) stop() {
	for _, w := range c.leases {
		w.Stop()
	}
}

const (
	// quiet is how long before and after a count none of the writes that do not count may come, so that the
	// server's count and the watch's agree.
	quiet = 100 * time.Millisecond
	// countLimit bounds the wait for such a moment.
	countLimit = 15 * time.Second
)

// count counts at every server.
func (c *writeCounter) count(ctx context.Context) (map[string]writeCount, error) {
	counts := map[string]writeCount{}
	for _, s := range c.drill.Fleet.Servers() {
		admin, err := kubernetes.NewForConfig(s.AdminConfig())
		if err != nil {
			return nil, fmt.Errorf("client of %s: %w", s.Name(), err)
		}
		err = harness.Await(ctx, countLimit, "writes at "+s.Name()+" are counted", func(ctx context.Context) error {
			before := len(c.leases[s.Name()].Seen())
			if err := process.Pass(ctx, quiet); err != nil {
				return err
			}
			at := harness.Now().Boot
			metrics, err := admin.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
			if err != nil {
				return err
			}
			if err := process.Pass(ctx, quiet); err != nil {
				return err
			}
			others := len(c.leases[s.Name()].Seen())
			if others != before {
				return errors.New("others wrote at the same time")
			}
			writes, err := count(bytes.NewReader(metrics), isWrite)
			counts[s.Name()] = writeCount{at, writes - float64(others)}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// writeVerbs are those of the metric that change something.
var writeVerbs = []string{"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}

// isWrite tells requests that write. Dry runs write nothing.
func isWrite(m *dto.Metric) bool {
	return slices.Contains(writeVerbs, label(m, "verb")) && label(m, "dry_run") == ""
}

// count adds up those requests that an API server has answered which are to be counted, whatever the answer was.
func count(metrics io.Reader, counted func(*dto.Metric) bool) (float64, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(metrics)
	if err != nil {
		return 0, fmt.Errorf("metrics of an API server: %w", err)
	}
	family, ok := families["apiserver_request_total"]
	if !ok {
		return 0, errors.New("metrics of an API server: there is no apiserver_request_total")
	}
	var sum float64
	for _, m := range family.GetMetric() {
		if counted(m) {
			sum += m.GetCounter().GetValue()
		}
	}
	return sum, nil
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

func notManaged() labels.Selector {
	r, err := labels.NewRequirement(v1alpha1.ManagedLabel, selection.DoesNotExist, nil)
	if err != nil {
		panic(err) // the label is a constant
	}
	return labels.NewSelector().Add(*r)
}

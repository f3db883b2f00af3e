package integration

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// step is the time between two scrapes on promtool's clock. They were made a second apart.
const step = 15 * time.Second

// scrape is what a hub's metrics port had at an instant: the values of the hub's series. Without a hub there are none.
type scrape struct {
	at     time.Time
	series map[string]float64
}

// recording has the scrapes of a world's hub, one a second.
type recording struct {
	mu  sync.Mutex
	all []scrape
}

// record has the world's hub serve its metrics, and scrapes them until the test ends.
func (w *world) record() *recording {
	w.MetricsAddress, w.Metrics = fleet.FreeAddress(w.T), metrics.Registry
	token := musttest.Get(w.Servers.Hub().ServiceAccountConfig(w.T.Context(), w.System, "prometheus",
		[]rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}))(w.T).BearerToken
	r := &recording{}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	w.T.Cleanup(func() { cancel(); group.Wait() })
	group.Go(func() {
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			text, err := harness.Scrape(ctx, w.MetricsAddress, token)
			if err != nil {
				text = ""
			}
			r.add(text)
		}, time.Second)
	})
	return r
}

// add appends a scrape. The format of Prometheus has one series and its value in a line, and promtool reads the same.
func (r *recording) add(text string) {
	s := scrape{time.Now(), map[string]float64{}}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		i := strings.LastIndex(line, " ")
		if value, err := strconv.ParseFloat(line[i+1:], 64); err == nil && strings.HasPrefix(line, "leasecast_") {
			s.series[line[:i]] = value
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, s)
}

// scrapes returns all scrapes so far.
func (r *recording) scrapes() []scrape {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all[:len(r.all):len(r.all)]
}

// timeline is the time of promtool, which begins at zero: the number of a scrape for each step.
type timeline []int

// play adds the scrapes of a part of the recording, and holds the last one. It returns when that ends.
func (l *timeline) play(from, to int, hold time.Duration) (end time.Duration) {
	for i := from; i < to; i++ {
		*l = append(*l, i)
	}
	for range hold/step + 1 {
		*l = append(*l, to)
	}
	return time.Duration(len(*l)-1) * step
}

// inputSeries writes the series of a timeline as promtool reads them.
func (r *recording) inputSeries(l timeline) (all []map[string]string) {
	scrapes, names := r.scrapes(), map[string]bool{}
	for _, i := range l {
		for name := range scrapes[i].series {
			names[name] = true
		}
	}
	for name := range names {
		var values []string
		last, times, shifted := "_", 0, map[float64]float64{}
		flush := func() {
			switch {
			case times == 0:
			case last == "_":
				values = append(values, fmt.Sprintf("_x%d", times))
			case last == "stale":
				values = append(values, last)
			default:
				values = append(values, fmt.Sprintf("%sx%d", last, times-1))
			}
		}
		for k, i := range l {
			is := "_"
			if value, ok := scrapes[i].series[name]; ok {
				if strings.Contains(name, "_timestamp_seconds{") {
					if _, known := shifted[value]; !known {
						shifted[value] = value - float64(scrapes[i].at.UnixMilli())/1e3 + (time.Duration(k) * step).Seconds()
					}
					value = shifted[value]
				}
				is = strconv.FormatFloat(value, 'f', -1, 64)
			} else if last != "_" && last != "stale" {
				is = "stale" // a Prometheus notes it when a scrape has a series no more
			}
			if is != last {
				flush()
				last, times = is, 0
			}
			times++
		}
		flush()
		all = append(all, map[string]string{"series": labelled(name), "values": strings.Join(values, " ")})
	}
	return all
}

// labelled adds the labels that a Prometheus gives to all series of a Pod.
func labelled(name string) string {
	name, labels, _ := strings.Cut(strings.TrimSuffix(name, "}"), "{")
	return fmt.Sprintf("%s{%s}", name, strings.TrimPrefix(labels+`,job="leasecast-hub",pod="hub"`, ","))
}

// firing is a check of promtool: these alerts fire at an instant, and no others. Each is as labels.
func firing(at time.Duration, alerts ...string) map[string]any {
	samples := []any{}
	for _, labels := range alerts {
		samples = append(samples, map[string]any{"labels": labels, "value": 1})
	}
	return map[string]any{
		"expr":      `group by (alertname, fleet, namespace, member, policy) (ALERTS{alertstate="firing"})`,
		"eval_time": at.String(), "exp_samples": samples,
	}
}

// promtool tests the rules of config/prometheus.
func (w *world) promtool(name string, series []map[string]string, checks ...map[string]any) error {
	rules := musttest.Get(filepath.Abs("../../config/prometheus/rules.yaml"))(w.T)
	content := musttest.Get(yaml.Marshal(map[string]any{
		"rule_files": []string{rules}, "evaluation_interval": step.String(),
		"tests": []any{map[string]any{
			"name": name, "interval": step.String(), "input_series": series, "promql_expr_test": checks,
		}},
	}))(w.T)
	file := filepath.Join(w.T.TempDir(), "recorded.yaml")
	w.Must(os.WriteFile(file, content, 0o600))
	program := os.Getenv("PROMTOOL")
	if program == "" {
		return errors.New("PROMTOOL names no promtool: make integration builds it and sets this")
	}
	out, err := exec.CommandContext(w.T.Context(), program, "test", "rules", file).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return err
}

// value is that of a series in a scrape, or NaN if it has none.
func (s scrape) value(series string) float64 {
	if value, ok := s.series[series]; ok {
		return value
	}
	return math.NaN()
}

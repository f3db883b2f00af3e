// Package metrics has the Prometheus metrics of Members. Package gate registers them by itself. Any other program does
// so:
//
//	c := metrics.New()
//	c.Add(m)
//	registry.MustRegister(c)
package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leasecast/leasecast/member"
)

// Source is a source of metrics: a [member.Member].
type Source interface {
	Namespaces() []string
	State(namespace string) member.State
	Term(namespace string) (member.Term, bool)
}

var (
	labels = []string{"namespace"}
	leads  = prometheus.NewDesc("leasecast_reader_leads",
		"1 where this cluster leads the namespace, 0 elsewhere.", labels, nil)
	left = prometheus.NewDesc("leasecast_reader_term_remaining_seconds",
		"How long this cluster leads on if the term is not renewed.", labels, nil)
	terms = prometheus.NewDesc("leasecast_reader_terms_total",
		"Terms of this cluster that have begun since the start.", labels, nil)
)

// Collector collects from Members. A namespace's series end with its Leases.
type Collector struct {
	mu      sync.Mutex
	sources []Source
}

var _ prometheus.Collector = (*Collector)(nil)

// New returns a Collector without any source.
func New() *Collector { return &Collector{} }

// Add adds a Member to collect from. Several that show one namespace make one series.
func (c *Collector) Add(s Source) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sources = append(c.sources, s)
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- leads
	ch <- left
	ch <- terms
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	sources := c.sources
	c.mu.Unlock()
	seen := map[string]bool{} // two Members of one cluster report the same
	for _, s := range sources {
		for _, ns := range s.Namespaces() {
			if !seen[ns] {
				seen[ns] = true
				collect(ch, s, ns)
			}
		}
	}
}

func collect(ch chan<- prometheus.Metric, s Source, ns string) {
	ch <- prometheus.MustNewConstMetric(terms, prometheus.CounterValue, float64(s.State(ns).Terms), ns)
	term, holds := s.Term(ns)
	if !holds {
		ch <- prometheus.MustNewConstMetric(leads, prometheus.GaugeValue, 0, ns)
		return
	}
	ch <- prometheus.MustNewConstMetric(leads, prometheus.GaugeValue, 1, ns)
	ch <- prometheus.MustNewConstMetric(left, prometheus.GaugeValue, term.Remaining().Seconds(), ns)
}

package gate

import (
	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/metrics"
)

// The metrics of this process in controller-runtime's registry.
var (
	members = metrics.New()
	drops   = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "leasecast_reader_reconciles_dropped_total",
		Help: "Requests that were not acted on to the end, by reason: this cluster does not lead (skipped), nobody would " +
			"ever act on them (refused), or the term ended before the reconciler (cut).",
	}, []string{"controller", "reason"})
)

func init() { ctrlmetrics.Registry.MustRegister(members, drops) }

// observe adds a Leader to the metrics.
func observe(m member.Leader) {
	if s, ok := m.(metrics.Source); ok {
		members.Add(s)
	}
}

// dropped counts the requests that a controller has dropped.
type dropped struct{ skipped, refused, cut prometheus.Counter }

func droppedBy(controller string) dropped {
	of := func(reason string) prometheus.Counter { return drops.WithLabelValues(controller, reason) }
	return dropped{of("skipped"), of("refused"), of("cut")}
}

package metrics_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/leasecast/leasecast/member/internal/musttest"
	"github.com/leasecast/leasecast/member/membertest"
	"github.com/leasecast/leasecast/member/metrics"
)

func TestTheMetricsOfAMember(t *testing.T) {
	const help = "# HELP leasecast_reader_leads 1 where this cluster leads the namespace, 0 elsewhere.\n" +
		"# TYPE leasecast_reader_leads gauge\n"
	const left = "# HELP leasecast_reader_term_remaining_seconds " +
		"How long this cluster leads on if the term is not renewed.\n" +
		"# TYPE leasecast_reader_term_remaining_seconds gauge\n"
	const terms = "# HELP leasecast_reader_terms_total Terms of this cluster that have begun since the start.\n" +
		"# TYPE leasecast_reader_terms_total counter\n"
	f, c, registry := membertest.New(), metrics.New(), prometheus.NewRegistry()
	registry.MustRegister(c)
	c.Add(f)
	c.Add(f)          // who adds twice sees nothing twice
	c.Add(another(f)) // nor does who has two Members
	expect := func(when, want string) {
		t.Helper()
		families := musttest.Get(registry.Gather())(t)
		var got strings.Builder
		for _, family := range families {
			_ = musttest.Get(expfmt.MetricFamilyToText(&got, family))(t)
		}
		if got.String() != want {
			t.Errorf("%s:\n%s\nwant\n%s", when, got.String(), want)
		}
	}
	expect("before the first Lease", "")
	f.Promote("shop")
	f.Demote("ledger")
	f.Advance(5 * time.Second)
	expect("one is led", help+`leasecast_reader_leads{namespace="ledger"} 0
leasecast_reader_leads{namespace="shop"} 1
`+left+`leasecast_reader_term_remaining_seconds{namespace="shop"} 10
`+terms+`leasecast_reader_terms_total{namespace="ledger"} 0
leasecast_reader_terms_total{namespace="shop"} 1
`)
	f.Promote("shop")
	f.Expire()
	f.DeleteLease("ledger")
	expect("the term has run out, and a Lease is gone", help+`leasecast_reader_leads{namespace="shop"} 0
`+terms+`leasecast_reader_terms_total{namespace="shop"} 2
`)
}

// another is a second Member of the same cluster.
func another(f *membertest.Fake) metrics.Source { return struct{ *membertest.Fake }{f} }

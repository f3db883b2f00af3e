package fleet

import (
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/leasecast/leasecast/hub/health"
)

type member struct {
	writer       kubernetes.Interface
	writerConfig *rest.Config
}

func (m *member) engaged() cluster.Cluster                    { panic("to come") }
func (m *member) verdict(th health.Thresholds) health.Verdict { panic("to come") }
func (m *member) observe(o health.Observation)                { panic("to come") }

package integration

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/member"
)

// registered runs a reader in a member that registers, until stop.
func (w *world) registered(in, namespace string) (stop func()) {
	cfg := w.Servers.Member(in).AdminConfig()
	cfg.Wrap(member.CapWrites)
	client := harness.Get(rest.HTTPClientFor(cfg))(w.T)
	m := harness.Get(member.New(cfg, member.Options{
		Namespaces:   []string{namespace},
		MaxClockSkew: epsilon,
		Registration: &member.Registration{Namespace: namespace, Client: client},
	}))(w.T)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			w.Must(<-ended)
		})
	}
	w.T.Cleanup(stop)
	return stop
}

// awaitReaders waits until the status counts so many registered readers of a namespace in each of these Clusters.
func (w *world) awaitReaders(namespace string, want map[string]int32) {
	w.Eventually(fmt.Sprintf("readers are counted: %v", want), soon, func() error {
		for cluster, n := range want {
			if c, err := w.Candidate(namespace, cluster); err != nil || c.Readers != n {
				return fmt.Errorf("%s has %d: %w", cluster, c.Readers, err)
			}
		}
		return nil
	})
}

func TestRegisteredReadersAreCountedInTheStatusAndToldInEvents(t *testing.T) {
	t.Parallel()
	w, a, _ := eastLeads(t, steady)
	const came, gone = reason.Reason("ReaderRegistered"), reason.Reason("ReaderGone")
	w.awaitReaders(a, map[string]int32{"east": 0, "west": 0, "south": 0})

	first := w.registered("east", a)
	w.awaitReaders(a, map[string]int32{"east": 1, "west": 0, "south": 0})
	w.awaitEvent("east", came, a+"/leasecast-reader-", "has registered for namespaces "+a, "registered in this cluster: 1")
	second := w.registered("east", a)
	w.registered("west", a)
	w.awaitReaders(a, map[string]int32{"east": 2, "west": 1, "south": 0})
	w.awaitEvent("east", came, "registered in this cluster: 2")
	w.awaitEvent("west", came, "registered in this cluster: 1")

	first()
	w.awaitReaders(a, map[string]int32{"east": 1, "west": 1, "south": 0})
	w.awaitEvent("east", gone, a+"/leasecast-reader-", "is not registered any more", "registered in this cluster: 1")
	second()
	w.awaitReaders(a, map[string]int32{"east": 0, "west": 1, "south": 0})
	w.awaitEvent("east", gone, "registered in this cluster: 0")
}

package hub

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	utilclock "k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/hub/seal"
)

const (
	// askTimeout bounds one question to the hub's API server before the manager runs.
	askTimeout = 5 * time.Second
	// askEvery is the pause between two of them.
	askEvery = time.Second
	// logEvery is the pause between two log lines while there is no answer.
	logEvery = 30 * time.Second
	// probeTimeout bounds what a client of the probes may take to ask.
	probeTimeout = 5 * time.Second
)

// awaitHubID returns the mark of this installation: the UID of the management cluster's kube-system namespace, and the
// namespace of the election. It asks until the API server answers, or ctx ends. It retries also after a refusal:
// an API server that has just started refuses what it allows a moment later. In the meantime the probes report that the
// hub is alive and not ready. So no kubelet restarts it, with growing pauses.
func awaitHubID(ctx context.Context, cfg *rest.Config, o Options) (string, error) {
	cs, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return "", fmt.Errorf("hub: %w", err)
	}
	stop, err := answerProbes(o.ProbeAddress)
	if err != nil {
		return "", err
	}
	defer stop()
	uid, err := await(ctx, func(ctx context.Context) (string, error) {
		ns, err := cs.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return string(ns.UID), nil
	})
	if err != nil {
		return "", fmt.Errorf("hub: the management cluster cannot be identified: %w", err)
	}
	return seal.Mark(uid, o.Namespace), nil
}

// await asks until there is an answer. It returns the last error when ctx ends.
func await(ctx context.Context, ask func(context.Context) (string, error)) (answer string, err error) {
	logger, clock := log.FromContext(ctx).WithName("start"), utilclock.RealClock{}
	var logged time.Time
	ended := wait.PollUntilContextCancel(ctx, askEvery, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		answer, err = ask(ctx)
		if err != nil && clock.Since(logged) >= logEvery {
			logged = clock.Now()
			logger.Info("The API server of the management cluster does not answer yet: the hub waits for it", "err", err.Error())
		}
		return err == nil, nil
	})
	return answer, errors.Join(ended, err)
}

// answerProbes answers the probes at an address until stop is called: alive, and not ready.
func answerProbes(address string) (stop func(), err error) {
	if address == "" || address == "0" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("hub: probes: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the API server of the management cluster has not answered yet", http.StatusServiceUnavailable)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: probeTimeout}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // it ends with Close
	}()
	return func() {
		_ = server.Close() // the manager answers from now on
		<-done
	}, nil
}

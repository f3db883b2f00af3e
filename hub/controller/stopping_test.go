package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

func TestWhatTheQueueGetsOfADecision(t *testing.T) {
	later, failed := reconcile.Result{RequeueAfter: time.Second}, errors.New("failed")
	for name, test := range map[string]struct {
		stopping bool
		result   reconcile.Result
		err      error
		want     reconcile.Result
		wantErr  error
	}{
		"the result":                        {false, later, nil, later, nil},
		"an error, and no result beside it": {false, later, failed, reconcile.Result{}, failed},
		"no error of a hub that stops":      {true, later, failed, reconcile.Result{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if test.stopping {
				cancel()
			}
			got, err := withoutErrorsOfStopping(func(context.Context, mcreconcile.Request) (reconcile.Result, error) {
				return test.result, test.err
			})(ctx, mcreconcile.Request{})
			if got != test.want || !errors.Is(err, test.wantErr) {
				t.Errorf("%v, %v; want %v, %v", got, err, test.want, test.wantErr)
			}
		})
	}
}

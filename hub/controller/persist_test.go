package controller

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/seal"
)

// Rule 6: no record depends on a D that the seal does not hold. Where people have to put the seal right, the error
// tells that.
func TestNoRecordIsWrittenBeforeTheSealHoldsItsDuration(t *testing.T) {
	for name, test := range map[string]struct {
		refusal   error
		forPeople bool
	}{
		"people have to let the hub write it": {
			apierrors.NewForbidden(corev1.Resource("secrets"), seal.SecretName, errRefused), true,
		},
		"it may be written later": {apierrors.NewTimeoutError("etcdserver: request timed out", 0), false},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, api := newTestHub(t)
			w := &writes{Client: api}
			c.Client, c.Seals = w, seal.NewStore(api, refusing{api, test.refusal})
			v, err := c.gather(t.Context(), shop)
			if err != nil {
				t.Fatal(err)
			}
			r := v.State.Record
			r.Epoch, r.Duration = 21, 2*time.Minute
			_, err = c.persist(t.Context(), v, planOf(election.Decision{Record: r, Persist: true}))
			if err == nil || errors.Is(err, errSeal) != test.forPeople || w.records > 0 {
				t.Errorf("%v, for people: %v; %d writes", err, errors.Is(err, errSeal), w.records)
			}
		})
	}
}

// Rule 2: also where the record says nothing new, as beside a seal that was restored from a backup.
func TestTheSealHoldsWhatTheRecordSaidBefore(t *testing.T) {
	c, _, api := newTestHub(t)
	changeStored(t, api, recordOf("fleet", "shop"), func(o *v1alpha1.NamespaceLeader) {
		o.Spec = said20()
		o.Spec.Hub, o.Spec.Policy, o.Spec.LeaseDurationSeconds, o.Spec.StopTimeSeconds = "this", "shops", 77, 99
	})
	w := &writes{Client: api}
	c.Client = w
	v, err := c.gather(t.Context(), shop)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.persist(t.Context(), v, planOf(election.Decision{Record: v.State.Record})); err != nil ||
		w.records > 0 {
		t.Fatalf("%v, and %d writes of the record", err, w.records)
	}
	s, err := seal.NewStore(api, api).Find(t.Context(), "fleet")
	if b := s.Of("shops"); err != nil || b.Duration != 77*time.Second || b.Stop != 99*time.Second {
		t.Errorf("the seal holds %v of the policy (%v); the record has D 77 s and a stop time of 99 s", b, err)
	}
}

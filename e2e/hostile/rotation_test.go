package hostile

import (
	"bytes"
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/seal"
)

// As config/README.md says: while no hub runs, the key is replaced.
func TestTheKeyOfTheSealCanBeRotated(t *testing.T) {
	s := shared
	s.restart(t)
	before, err := s.Record(t.Context(), shop)
	musttest.Do(t, err)
	s.stopHubs(t)

	secret := &corev1.Secret{}
	musttest.Do(t, s.Hub.Get(t.Context(), client.ObjectKey{Namespace: harness.FleetNamespace, Name: sealName}, secret))
	key := seal.Key(bytes.Repeat([]byte("new-"), 8))
	secret.Data["key"] = key
	musttest.Do(t, s.Hub.Update(t.Context(), secret))

	s.startHubs(t)
	s.Eventually(t, patience, "the leader's Lease has the new seal", func(ctx context.Context) error {
		leader, err := s.leader(ctx)
		if err != nil {
			return err
		}
		l, err := s.LeaseIn(ctx, leader, shop)
		if err != nil {
			return err
		}
		if c, text := wire.Read(l); !key.Sealed(c, text) {
			return errors.New("it has another one")
		}
		return nil
	})
	after, err := s.Record(t.Context(), shop)
	musttest.Do(t, err)
	if after.Spec.Epoch < before.Spec.Epoch {
		t.Errorf("the epoch has fallen from %d to %d", before.Spec.Epoch, after.Spec.Epoch)
	}
}

// A program that applies manifests may replace the Secret by the empty one that an installation came with.
func TestASealThatIsResetIsWrittenBack(t *testing.T) {
	s := shared
	s.restart(t)
	before, err := s.Record(t.Context(), shop)
	musttest.Do(t, err)
	secret := &corev1.Secret{}
	name := client.ObjectKey{Namespace: harness.FleetNamespace, Name: sealName}
	musttest.Do(t, s.Hub.Get(t.Context(), name, secret))
	key := secret.Data["key"]
	secret.Data, secret.Labels, secret.Annotations = nil, nil, nil
	musttest.Do(t, s.Hub.Update(t.Context(), secret))

	s.Eventually(t, patience, "the seal is there again, with the mark of the hub", func(ctx context.Context) error {
		now := &corev1.Secret{}
		if err := s.Hub.Get(ctx, name, now); err != nil {
			return err
		}
		if !bytes.Equal(now.Data["key"], key) || now.Annotations[v1alpha1.HubAnnotation] == "" {
			return errors.New("it is not")
		}
		return nil
	})
	after, err := s.Record(t.Context(), shop)
	musttest.Do(t, err)
	if after.Spec.Epoch != before.Spec.Epoch {
		t.Errorf("the term of epoch %d ended: it is %d now", before.Spec.Epoch, after.Spec.Epoch)
	}
}

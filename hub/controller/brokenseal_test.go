package controller

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/seal"
)

// staying is a fleet that does not move.
type staying struct{ served }

func (staying) move(context.Context, string) (fleet.Move, error) { return fleet.Stays, nil }

// A Secret that was emptied while no hub ran holds no seal any more. The policies of the fleet show what is wrong and what
// to do, until it is put right.
func TestPoliciesShowThatTheSealIsLost(t *testing.T) {
	var requests []string
	c, _, _ := installation(t, "", &requests)
	c.source = staying{served{fleetSource{c.Fleet}, ""}}
	granted := func() metav1.Condition {
		t.Helper()
		if _, err := c.reconcilePolicy(t.Context(), mcreconcile.Request{Request: reconcile.Request{NamespacedName: shops}}); err != nil {
			t.Fatal(err)
		}
		var p v1alpha1.LeadershipPolicy
		if err := c.client.Get(t.Context(), shops, &p); err != nil {
			t.Fatal(err)
		}
		return *meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionSecretsGranted)
	}
	emptied := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: "fleet", Name: seal.SecretName, Annotations: map[string]string{v1alpha1.HubAnnotation: c.HubID},
	}}
	if err := c.client.Create(t.Context(), emptied.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, ok := c.serve(t.Context(), "fleet"); ok {
			t.Fatal("the fleet is served by a seal that is lost")
		}
	}
	got := granted()
	if got.Status != metav1.ConditionFalse || got.Reason != string(reason.InvalidSeal) ||
		!strings.Contains(got.Message, "secret fleet/leasecast-seal") || !strings.Contains(got.Message, "kubectl -n fleet annotate secret leasecast-seal") {
		t.Errorf("%s %s: %s", got.Status, got.Reason, got.Message)
	}
	if err := client.IgnoreNotFound(c.client.Delete(t.Context(), emptied)); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.serve(t.Context(), "fleet"); !ok {
		t.Fatal("the fleet is not served")
	}
	if got := granted(); got.Status != metav1.ConditionTrue {
		t.Errorf("%s %s: %s", got.Status, got.Reason, got.Message)
	}
}

// refusing is an API server that refuses every update.
type refusing struct {
	client.Client
	with error
}

func (r refusing) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	if r.with != nil {
		return r.with
	}
	return r.Client.Update(ctx, o, opts...)
}

// ofSeal are the answers to an update that only people can change.
func ofSeal() map[string]error {
	return map[string]error{
		"an immutable Secret": apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Secret").GroupKind(), seal.SecretName, field.ErrorList{
			field.Forbidden(field.NewPath("data"), "field is immutable when `immutable` is set"),
		}),
		"a webhook that refuses": apierrors.NewForbidden(corev1.Resource("secrets"), seal.SecretName, errRefused),
	}
}

// counted is a context whose log counts the errors that it tells.
func counted(t *testing.T) (ctx context.Context, errors *int) {
	errors = new(int)
	return log.IntoContext(t.Context(), funcr.New(func(_, line string) {
		if strings.Contains(line, `"error"`) {
			*errors++
		}
	}, funcr.Options{})), errors
}

func TestASealThatCannotBeWrittenIsShown(t *testing.T) {
	for name, refusal := range ofSeal() {
		t.Run(name, func(t *testing.T) {
			var requests []string
			c, _, _ := installation(t, "", &requests)
			c.source = staying{served{fleetSource{c.Fleet}, ""}}
			empty := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: seal.SecretName}}
			if err := c.client.Create(t.Context(), empty); err != nil {
				t.Fatal(err)
			}
			ctx, told := counted(t)
			writable := c.Seals
			c.Seals = seal.NewStore(c.client, refusing{c.client, refusal})
			for range 3 {
				if _, ok := c.serve(ctx, "fleet"); ok {
					t.Fatal("the fleet is served by a seal that is stored nowhere")
				}
			}
			is := secretsGranted("", c.brokenSeal("fleet"))
			if is.Status != metav1.ConditionFalse || is.Reason != string(reason.InvalidSeal) || *told != 1 ||
				!strings.Contains(is.Message, "secret fleet/leasecast-seal") || !strings.Contains(is.Message, "if it is immutable, delete it") {
				t.Errorf("told %d times: %s %s", *told, is.Reason, is.Message)
			}
			c.Seals = writable
			if _, ok := c.serve(ctx, "fleet"); !ok || c.brokenSeal("fleet") != "" {
				t.Errorf("it can be written: %q", c.brokenSeal("fleet"))
			}
		})
	}
}

func TestASealThatCannotBeRaisedIsShown(t *testing.T) {
	for name, refusal := range ofSeal() {
		t.Run(name, func(t *testing.T) {
			c, _, api := onScene(t)
			small := sealOf(shop.Namespace)
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(small), small); err != nil {
				t.Fatal(err)
			}
			small.Data["largest-lease-duration-seconds"] = []byte("5")
			if err := api.Update(t.Context(), small); err != nil {
				t.Fatal(err)
			}
			ctx, told := counted(t)
			answer := &refusing{api, refusal}
			c.Seals = seal.NewStore(api, answer)
			decide := func() (reconcile.Result, error) {
				return c.reconcileNamespace(ctx, mcreconcile.Request{Request: reconcile.Request{NamespacedName: shop}})
			}
			for range 3 {
				if again, err := decide(); err != nil || again.RequeueAfter <= 0 {
					t.Fatalf("%+v, %v", again, err)
				}
				if known, err := c.Seals.Find(ctx, shop.Namespace); err != nil || known.LargestDuration != 5*time.Second {
					t.Fatalf("%+v, %v", known, err)
				}
			}
			if is := c.brokenSeal(shop.Namespace); *told != 1 || !strings.Contains(is, "if it is immutable, delete it") {
				t.Errorf("told %d times: %q", *told, is)
			}
			c.noteSeal(ctx, useOfSeal{fleet: shop.Namespace}, nil) // as a worker does, who has nothing to write
			if c.brokenSeal(shop.Namespace) == "" {
				t.Error("it is hidden by another use that goes well")
			}
			answer.with = nil
			if _, err := decide(); err != nil || c.brokenSeal(shop.Namespace) != "" {
				t.Errorf("it can be raised: %v, %q", err, c.brokenSeal(shop.Namespace))
			}
		})
	}
}

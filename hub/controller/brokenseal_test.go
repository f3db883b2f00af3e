package controller

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
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
	"github.com/leasecast/leasecast/hub/explain"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/seal"
)

// staying is a fleet that does not move.
type staying struct{ elsewhere }

func (staying) move(context.Context, string) (fleet.Move, error) { return fleet.Stays, nil }

// A Secret that was emptied while no hub ran holds no seal any more. The policies of the fleet show what is wrong and
// what to do, until it is put right.
func TestPoliciesShowThatTheSealIsLost(t *testing.T) {
	var requests []string
	c, _, _ := installation(t, "", &requests)
	c.source = staying{elsewhere{fleetSource{c.Fleet}, ""}}
	granted := func() metav1.Condition {
		t.Helper()
		if _, err := c.statuses.reconcilePolicy(t.Context(),
			mcreconcile.Request{Request: reconcile.Request{NamespacedName: shops}}); err != nil {
			t.Fatal(err)
		}
		var p v1alpha1.LeadershipPolicy
		if err := c.Client.Get(t.Context(), shops, &p); err != nil {
			t.Fatal(err)
		}
		return *meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionSecretsGranted)
	}
	emptied := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: "fleet", Name: seal.SecretName, Annotations: map[string]string{v1alpha1.HubAnnotation: c.HubID},
	}}
	if err := c.Client.Create(t.Context(), emptied.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, ok := c.seals.serve(t.Context(), "fleet"); ok {
			t.Fatal("the fleet is served by a seal that is lost")
		}
	}
	got := granted()
	if got.Status != metav1.ConditionFalse || got.Reason != string(reason.InvalidSeal) ||
		!strings.Contains(got.Message, "secret fleet/leasecast-seal") ||
		!strings.Contains(got.Message, "kubectl -n fleet annotate secret leasecast-seal") {
		t.Errorf("%s %s: %s", got.Status, got.Reason, got.Message)
	}
	if err := client.IgnoreNotFound(c.Client.Delete(t.Context(), emptied)); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.seals.serve(t.Context(), "fleet"); !ok {
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
		"an immutable Secret": apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Secret").GroupKind(), seal.SecretName,
			field.ErrorList{
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
			c.source = staying{elsewhere{fleetSource{c.Fleet}, ""}}
			empty := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: seal.SecretName}}
			if err := c.Client.Create(t.Context(), empty); err != nil {
				t.Fatal(err)
			}
			ctx, told := counted(t)
			writable := c.Seals
			c.Seals = seal.NewStore(c.Client, refusing{c.Client, refusal})
			for range 3 {
				if _, ok := c.seals.serve(ctx, "fleet"); ok {
					t.Fatal("the fleet is served by a seal that is stored nowhere")
				}
			}
			is := explain.SecretsGranted("", c.seals.why("fleet"))
			if is.Status != metav1.ConditionFalse || is.Reason != string(reason.InvalidSeal) || *told != 1 ||
				!strings.Contains(is.Message, "secret fleet/leasecast-seal") ||
				!strings.Contains(is.Message, "if it is immutable, delete it") {
				t.Errorf("told %d times: %s %s", *told, is.Reason, is.Message)
			}
			c.Seals = writable
			if _, ok := c.seals.serve(ctx, "fleet"); !ok || c.seals.why("fleet") != "" {
				t.Errorf("it can be written: %q", c.seals.why("fleet"))
			}
		})
	}
}

// Whether the seal can be used changes what a worker does in all of the fleet. Decisions look again by themselves. What
// time may heal neither hides nor mends what people have to put right.
func TestWhoHearsOfASealThatCannotBeUsed(t *testing.T) {
	broken, none := fmt.Errorf("%w: it is short", seal.ErrBroken), []string(nil)
	records, policies := []string{"fleet/shop"}, []string{"fleet/shops"}
	type hears struct {
		log               int
		records, policies []string
	}
	for name, test := range map[string]struct {
		raise       bool
		was, is     error
		want        hears
		shown, ends bool // the decision
	}{
		"it is broken":                              {false, nil, broken, hears{1, records, policies}, true, true},
		"it cannot be raised":                       {true, nil, broken, hears{1, none, policies}, true, true},
		"it is broken, as before":                   {false, broken, broken, hears{0, none, none}, true, true},
		"it cannot be raised, as before":            {true, broken, broken, hears{0, none, none}, true, true},
		"it is whole again":                         {false, broken, nil, hears{0, records, policies}, false, false},
		"it can be raised again":                    {true, broken, nil, hears{0, none, policies}, false, false},
		"it can be used, as before":                 {false, nil, nil, hears{0, none, none}, false, false},
		"it cannot be read now":                     {false, nil, errRefused, hears{1, none, none}, false, false},
		"it cannot be raised now, as a decision":    {true, nil, errRefused, hears{0, none, none}, false, false},
		"another installation was faster":           {false, nil, seal.ErrServed, hears{0, none, none}, false, false},
		"it is broken, and cannot be read now":      {false, broken, errRefused, hears{1, none, none}, true, false},
		"it cannot be raised, and not even be read": {true, broken, errRefused, hears{0, none, none}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				record := &v1alpha1.NamespaceLeader{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "shop"}}
				m := newMuster(t, record, policyOf("fleet", "shops", "shop"), policyOf("fleet2", "others", "other"))
				use := useOfSeal{"fleet", test.raise}
				m.seals.note(t.Context(), use, test.was)
				asked(&m.recordQueue)
				asked(&m.policyQueue)
				ctx, lines := counted(t)
				ends := m.seals.note(ctx, use, test.is)
				got := hears{*lines, asked(&m.recordQueue), asked(&m.policyQueue)}
				if !reflect.DeepEqual(got, test.want) {
					t.Errorf("told: %+v, want %+v", got, test.want)
				}
				if shown := m.seals.why("fleet") != ""; shown != test.shown || ends != test.ends {
					t.Errorf("it is shown: %v, and ends a decision: %v; want %v, %v", shown, ends, test.shown, test.ends)
				}
			})
		})
	}
}

// The words of an API server may be of any length, and a condition takes only so many.
func TestHowMuchOfARefusalOfTheSealIsShown(t *testing.T) {
	refusal := apierrors.NewForbidden(corev1.Resource("secrets"), seal.SecretName, errors.New(strings.Repeat("no ", 300)))
	words, advice, _ := strings.Cut(explain.BrokenSeal(refusal), ": the hub must be able to update this Secret: ")
	if words != refusal.Error()[:512] || advice == "" {
		t.Errorf("%d bytes of the refusal, and then %q", len(words), advice)
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
			small.Data["policies"] = sealed("5s", "1s", "0s", "shops")
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
				if known, err := c.Seals.Find(ctx, shop.Namespace); err != nil || known.Largest().Duration != 5*time.Second {
					t.Fatalf("%+v, %v", known, err)
				}
			}
			if is := c.seals.why(shop.Namespace); *told != 1 || !strings.Contains(is, "if it is immutable, delete it") {
				t.Errorf("told %d times: %q", *told, is)
			}
			c.seals.note(ctx, useOfSeal{fleet: shop.Namespace}, nil) // as a worker does, who has nothing to write
			if c.seals.why(shop.Namespace) == "" {
				t.Error("it is hidden by another use that goes well")
			}
			answer.with = nil
			if _, err := decide(); err != nil || c.seals.why(shop.Namespace) != "" {
				t.Errorf("it can be raised: %v, %q", err, c.seals.why(shop.Namespace))
			}
		})
	}
}

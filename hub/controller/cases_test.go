package controller

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/decide"
)

// With a case anyone decides as the hub did. Where no decision is made in time, the caller learns that.
func TestCasesAreWhatDecisionsRestOn(t *testing.T) {
	for name, test := range map[string]struct {
		decides, owned bool
		unsynced       bool
		refuses        error // of the caller, once it has a case
		want           int
	}{
		"decisions are made":                               {true, true, false, nil, 2},
		"the caller takes none":                            {true, true, false, errRefused, 1},
		"no decision is made":                              {false, true, false, nil, 0},
		"what no policy owns holds up no other one":        {true, false, false, nil, 0},
		"nothing is decided before the Clusters are known": {true, true, true, nil, 0},
	} {
		inBubble(t, name, func(t *testing.T) {
			c, f, api := newTestHub(t)
			f.unsynced = test.unsynced
			c.recordQueue.q = newTestQueue(t)
			musttest.Do(t, api.Create(t.Context(), recordOf("fleet", "till")))
			changeStored(t, api, policyOf("fleet", "shops", ""), func(p *v1alpha1.LeadershipPolicy) {
				p.Spec.Namespaces.Names = []string{"shop", "till"}
			})
			if !test.owned {
				musttest.Do(t, api.Delete(t.Context(), policyOf("fleet", "shops", "")))
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var texts []json.RawMessage
			ended := make(chan error)
			go func() {
				ended <- c.Cases(ctx, shop.Namespace, func(is json.RawMessage) error {
					texts = append(texts, is)
					return test.refuses
				})
			}()
			synctest.Wait()
			if got := asked(&c.recordQueue); !slices.Equal(got, []string{"fleet/shop", "fleet/till"}) {
				t.Errorf("decisions on %q", got)
			}
			for _, name := range []string{"shop", "shop", "till"} { // one of them twice
				if test.decides {
					_, err := c.reconcileNamespace(ctx, requestOf(types.NamespacedName{Namespace: "fleet", Name: name}))
					musttest.Do(t, err)
				}
			}
			if err := <-ended; (err == nil) != (test.decides && test.refuses == nil) || len(texts) != test.want {
				t.Fatalf("%d cases, %v", len(texts), err)
			}
			of := map[string]bool{}
			for _, text := range texts {
				var is decide.Case
				musttest.Do(t, json.Unmarshal(text, &is))
				of[is.Namespace] = true
				o := &v1alpha1.NamespaceLeader{}
				musttest.Do(t, api.Get(ctx, types.NamespacedName{Namespace: "fleet", Name: is.Namespace}, o))
				stored := o.Spec
				d := is.Next()
				if is.Patience <= 0 || d.Record.Leader != stored.Leader ||
					string(d.Record.State) != string(stored.State) || d.Record.Epoch != stored.Epoch {
					t.Errorf("%+v is decided, and the hub has stored %+v", d.Record, stored)
				}
			}
			if len(of) != test.want {
				t.Errorf("%d cases are of %v", test.want, of)
			}
			if len(c.cases.of) > 0 {
				t.Error("a case is still waited for")
			}
		})
	}
}

func TestCasesAreThoseOfTheReplicaThatDecides(t *testing.T) {
	c, f, api := newTestHub(t)
	c.Client = failing(api, "list")
	if err := c.Cases(t.Context(), shop.Namespace, nil); !errors.Is(err, errRefused) {
		t.Errorf("the records cannot be listed: %v", err)
	}
	f.other = "platform"
	if err := c.Cases(t.Context(), shop.Namespace, nil); !errors.Is(err, ErrStandby) {
		t.Errorf("another installation serves the fleet: %v", err)
	}
}

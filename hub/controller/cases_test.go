package controller

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
)

// With a case anyone decides as the hub did. Where no decision is made in time, the caller learns that.
func TestCasesAreWhatDecisionsRestOn(t *testing.T) {
	for name, test := range map[string]struct {
		decides, owned bool
		refuses        error // of the caller, once it has a case
		want           int
	}{
		"a decision is made":                        {true, true, nil, 1},
		"the caller takes none":                     {true, true, errRefused, 1},
		"no decision is made":                       {false, true, nil, 0},
		"what no policy owns holds up no other one": {true, false, nil, 0},
	} {
		inBubble(t, name, func(t *testing.T) {
			c, _, api := newTestHub(t)
			if !test.owned {
				must(t, api.Delete(t.Context(), policyOf("fleet", "shops", "")))
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
			if test.decides {
				_, err := c.reconcileNamespace(ctx, aboutShop)
				must(t, err)
			}
			if err := <-ended; (err == nil) != (test.decides && test.refuses == nil) || len(texts) != test.want {
				t.Fatalf("%d cases, %v", len(texts), err)
			}
			for _, text := range texts {
				var is decide.Case
				must(t, json.Unmarshal(text, &is))
				o := &v1alpha1.NamespaceLeader{}
				must(t, api.Get(ctx, shop, o))
				stored := o.Spec
				d := is.Next()
				if is.Namespace != shop.Name || is.Patience <= 0 || d.Record.Leader != stored.Leader ||
					string(d.Record.State) != string(stored.State) || d.Record.Epoch != stored.Epoch {
					t.Errorf("%+v is decided, and the hub has stored %+v", d.Record, stored)
				}
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

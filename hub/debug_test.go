package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/leasecast/leasecast/hub/controller"
)

func TestCasesAreServedToOneClientAtATime(t *testing.T) {
	entered, leave := make(chan string), make(chan error)
	serve := debugging(Options{Version: "v1"}, func(
		_ context.Context, fleet string, yield func(json.RawMessage) error,
	) error {
		entered <- fleet
		return errors.Join(yield(json.RawMessage(`{}`)), <-leave)
	})[CasesPath].ServeHTTP
	ask := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		serve(w, httptest.NewRequest(http.MethodGet, CasesPath+"?namespace=fleet", nil))
		return w
	}
	first := make(chan *httptest.ResponseRecorder)
	go func() { first <- ask() }()
	if fleet := <-entered; fleet != "fleet" {
		t.Errorf("the cases of %q are asked for", fleet)
	}
	if w := ask(); w.Code != http.StatusTooManyRequests {
		t.Errorf("a second client: status %d", w.Code)
	}
	leave <- nil
	if w := <-first; w.Code != http.StatusOK || w.Body.String() != "{}\n" || w.Header().Get(VersionHeader) != "v1" {
		t.Errorf("status %d, %q, header %v", w.Code, w.Body, w.Header())
	}
	go func() { first <- ask() }()
	<-entered
	leave <- nil
	if w := <-first; w.Code != http.StatusOK {
		t.Errorf("the next client: status %d", w.Code)
	}
}

func TestReplicaThatDoesNotDecideServesNoCases(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		status int
	}{
		"a standby":               {fmt.Errorf("%w %q", controller.ErrStandby, "fleet"), http.StatusServiceUnavailable},
		"the cache is not synced": {errors.New("the cache is not started"), http.StatusInternalServerError},
	} {
		w := httptest.NewRecorder()
		debugging(Options{}, func(context.Context, string, func(json.RawMessage) error) error {
			return test.err
		})[CasesPath].ServeHTTP(w, httptest.NewRequest(http.MethodGet, CasesPath, nil))
		if w.Code != test.status || !strings.Contains(w.Body.String(), test.err.Error()) {
			t.Errorf("%s: status %d: %s", name, w.Code, w.Body)
		}
	}
}

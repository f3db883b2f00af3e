package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/zap"
)

func TestVerbosityIsANumberUpTo5(t *testing.T) {
	level := zap.NewAtomicLevel()
	serve := verbosity(level)
	for _, test := range []struct {
		method, sent string
		status       int
		is           int8
	}{
		{http.MethodGet, "7", http.StatusOK, 0},
		{http.MethodPut, "3\n", http.StatusOK, 3},
		{http.MethodPut, "5", http.StatusOK, 5},
		{http.MethodPut, "6", http.StatusBadRequest, 5},
		{http.MethodPut, "-1", http.StatusBadRequest, 5},
		{http.MethodPut, "", http.StatusBadRequest, 5},
		{http.MethodPut, strings.Repeat(" ", 20) + "1", http.StatusBadRequest, 5},
		{http.MethodPut, "0", http.StatusOK, 0},
	} {
		w := httptest.NewRecorder()
		serve(w, httptest.NewRequest(test.method, "/debug/verbosity", strings.NewReader(test.sent)))
		if is := -int8(level.Level()); w.Code != test.status || is != test.is {
			t.Errorf("%s %q: status %d, verbosity %d", test.method, test.sent, w.Code, is)
		}
	}
}

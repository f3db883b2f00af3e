package main

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// maxVerbosity is as much as any message of the hub asks for. From 8 on client-go logs bodies, and so Secrets.
const maxVerbosity = 5

// verbosity returns the verbosity of the log, and sets it by PUT until the process ends.
func verbosity(level zap.AtomicLevel) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			text, err := io.ReadAll(io.LimitReader(r.Body, 16))
			n, invalid := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 8)
			if err != nil || invalid != nil || n > maxVerbosity {
				http.Error(w, fmt.Sprintf("the body must be a number up to %d", maxVerbosity), http.StatusBadRequest)
				return
			}
			level.SetLevel(zapcore.Level(-int8(n)))
		}
		_, _ = fmt.Fprintln(w, -int(level.Level()))
	}
}

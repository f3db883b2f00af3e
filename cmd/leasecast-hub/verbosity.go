package main

import (
	"fmt"

	"go.uber.org/zap/zapcore"
)

// maxVerbosity is more than any message asks for.
const maxVerbosity = 10

// level returns zap's level for a verbosity. It rejects values that zap's type would wrap.
func level(verbosity int) (zapcore.Level, error) {
	if verbosity < 0 || verbosity > maxVerbosity {
		return 0, fmt.Errorf("--v=%d is no verbosity: give a number from 0 to %d", verbosity, maxVerbosity)
	}
	return zapcore.Level(-verbosity), nil
}

package main

import (
	"testing"

	"go.uber.org/zap/zapcore"
)

func TestTheVerbosityIsFromZeroToTen(t *testing.T) {
	for verbosity, want := range map[int]zapcore.Level{0: zapcore.InfoLevel, 1: zapcore.DebugLevel, 10: -10} {
		if got, err := level(verbosity); err != nil || got != want {
			t.Errorf("%d: %v, %v; want %v", verbosity, got, err, want)
		}
	}
	for _, verbosity := range []int{-1, 11, 130, 256} {
		if got, err := level(verbosity); err == nil {
			t.Errorf("%d is the level %v", verbosity, got)
		}
	}
}

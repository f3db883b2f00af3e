package main

import (
	"fmt"
	"strings"

	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/util/validation"
)

// namespaces reads names that are separated by commas. An empty list means all namespaces.
func namespaces(list string) ([]string, error) {
	if strings.TrimSpace(list) == "" {
		return nil, nil
	}
	var names []string
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if len(validation.IsDNS1123Label(name)) > 0 {
			return nil, fmt.Errorf("--namespace=%s: %q is no name of a namespace: give names that are separated by commas",
				list, name)
		}
		names = append(names, name)
	}
	return names, nil
}

// maxVerbosity is more than any message asks for.
const maxVerbosity = 10

// level returns zap's level for a verbosity. It rejects values that zap's type would wrap.
func level(verbosity int) (zapcore.Level, error) {
	if verbosity < 0 || verbosity > maxVerbosity {
		return 0, fmt.Errorf("--v=%d is no verbosity: give a number from 0 to %d", verbosity, maxVerbosity)
	}
	return zapcore.Level(-verbosity), nil
}

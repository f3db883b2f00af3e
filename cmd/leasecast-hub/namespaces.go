package main

import (
	"fmt"
	"strings"

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

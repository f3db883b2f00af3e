//go:build !linux

package command

import "errors"

func newGroups([]string) (func(instant, int64) (group, error), error) {
	return nil, errors.New("a program can be gated on Linux only")
}

// RunWatchdog does nothing, because a program can be gated on Linux only.
func RunWatchdog() {}

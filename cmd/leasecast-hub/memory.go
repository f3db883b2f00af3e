package main

import (
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"strconv"
)

// memoryVariable is the environment variable with the memory limit of the container, in bytes.
const memoryVariable = "MEMORY_LIMIT"

// growthPercent is how much the heap grows before it is collected. With Go's own 100, a flood of a member's events
// takes half as much memory again.
const growthPercent = 50

// limitMemory makes the garbage collector begin early, and keep the heap at four fifths of the container's limit. The
// rest is for memory that it does not count. GOGC and GOMEMLIMIT, if they are set, take precedence.
func limitMemory() error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(growthPercent)
	}
	text := os.Getenv(memoryVariable)
	if text == "" || os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 || n == math.MaxInt64 {
		return fmt.Errorf("%s is %q: set it to the memory limit of the container in bytes, or leave it out",
			memoryVariable, text)
	}
	debug.SetMemoryLimit(n / 5 * 4)
	return nil
}

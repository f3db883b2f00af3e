package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/process"
)

// usage is the use of processor and memory by a process.
type usage struct {
	cores  float64 // of processor time, on average
	rssMiB float64 // of memory, the most of all samples
}

// sample watches a process for a while, and looks at it at least once.
func sample(ctx context.Context, pid int, d time.Duration) (usage, error) {
	var u usage
	cpu, err := cpuTime(pid)
	if err != nil {
		return u, err
	}
	begin := harness.Now().Boot
	for now := begin; now-begin < d; now = harness.Now().Boot {
		if err := process.Pass(ctx, sampleEvery); err != nil {
			return u, err
		}
		rss, err := rss(pid)
		if err != nil {
			return u, err
		}
		u.rssMiB = max(u.rssMiB, rss)
	}
	end, err := cpuTime(pid)
	if err != nil {
		return u, err
	}
	u.cores = (end - cpu).Seconds() / (harness.Now().Boot - begin).Seconds()
	return u, nil
}

func cpuTime(pid int) (time.Duration, error) {
	file := fmt.Sprintf("/proc/%d/stat", pid)
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	t, err := parseStat(string(text))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return t, nil
}

// parseStat reads the processor time, user and system, of /proc/<pid>/stat.
func parseStat(stat string) (time.Duration, error) {
	// The second field is the name of the program and may hold anything; the last ')' ends it.
	const tick = 10 * time.Millisecond // in which the kernel counts there, on every architecture that Go runs on
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, errors.New("too few fields")
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	if err != nil {
		return 0, err
	}
	return time.Duration(user+system) * tick, nil
}

func rss(pid int) (mib float64, err error) {
	file := fmt.Sprintf("/proc/%d/status", pid)
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	if mib, err = parseRSS(string(text)); err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return mib, nil
}

// parseRSS reads the memory in use of /proc/<pid>/status.
func parseRSS(status string) (mib float64, err error) {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 64)
			return kib / 1024, err
		}
	}
	return 0, errors.New("there is no VmRSS")
}

package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasecast/leasecast/e2e/harness"
)

// The keys of out/bench.json.
const (
	readerNs          = "reader.nsPerOp"
	readerAllocs      = "reader.allocsPerOp"
	resyncSeconds     = "reader.resyncSeconds"
	firstActSeconds   = "reader.firstActSeconds"
	overFloorMedian   = "failover.overFloorMedianSeconds"
	overFloorMax      = "failover.overFloorMaxSeconds"
	renewalDelayP99   = "blackhole.renewalDelayP99Seconds"
	membersPerSecond  = "writes.membersPerSecond"
	hubPerSecond      = "writes.hubPerSecond"
	cpuCores          = "hub.cpuCores"
	rssMiB            = "hub.rssMiB"
	handoverGapMedian = "handover.gapMedianSeconds"
	handoverGapP99    = "handover.gapP99Seconds"
	peerRequests      = "peer.requestsPerSecond"
	peerP50           = "peer.failoverP50Seconds"
	peerP99           = "peer.failoverP99Seconds"
	peerMax           = "peer.failoverMaxSeconds"
	oursRequests      = "ours.requestsPerSecond"
	oursP50           = "ours.failoverP50Seconds"
	oursP99           = "ours.failoverP99Seconds"
	oursMax           = "ours.failoverMaxSeconds"
	requestsRatio     = "requestsRatio"
	cpuCores1000      = "hub.cpuCores1000"
	rssMiB1000        = "hub.rssMiB1000"
	renewalAgeP999    = "renewalAgeP999Seconds"
	missedRenewals    = "missedRenewals"

	changeRecordWrites = "change.recordWrites"
	changeStatusWrites = "change.statusWrites"
	changeEvents       = "change.events"
	changeLiveReads    = "change.liveReads"
	massHandover       = "mass.handoverOverFloorSeconds"
	massFailover       = "mass.failoverOverFloorSeconds"

	fenceP50    = "fence.p50Milliseconds"
	fenceP99    = "fence.p99Milliseconds"
	fenceMemory = "fence.memoryMiB"
)

// targets are the most that each figure should be. Those without one are for information.
var targets = map[string]float64{
	readerNs: 100, readerAllocs: 0, resyncSeconds: 1, firstActSeconds: 1, overFloorMedian: 0.1, overFloorMax: 0.5,
	handoverGapMedian: 0.15, handoverGapP99: 0.5,
	renewalDelayP99: 0.1, membersPerSecond: 22, hubPerSecond: 0,
	oursP50: 14, oursMax: 16.7, requestsRatio: 0.2,
	changeRecordWrites: 2, changeStatusWrites: 1, changeEvents: 1, changeLiveReads: 0, massHandover: 3, massFailover: 3,
	cpuCores1000: 0.5, rssMiB1000: 110, renewalAgeP999: 10, missedRenewals: 0,
	fenceP99: 1, fenceMemory: 50,
}

// figures are the measured values, by key.
type figures map[string]float64

// keysOf are the keys of the figures of the measurements, alone and together.
func keysOf(chosen []measurement) []string {
	var keys []string
	names := map[string]bool{}
	for _, m := range chosen {
		keys = append(keys, m.keys...)
		names[m.name] = true
	}
	if names[peerName] && names[oursName] {
		keys = append(keys, requestsRatio)
	}
	return keys
}

// compare works out what two measurements give together.
func (f figures) compare() {
	peer, ours := f[peerRequests], f[oursRequests]
	if peer > 0 && ours > 0 {
		f[requestsRatio] = ours / peer
	}
}

// table shows the figures beside their targets.
func (f figures) table(chosen []measurement) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%-34s %12s %12s\n", "figure", "measured", "target")
	for _, key := range keysOf(chosen) {
		value, target, verdict := "not measured", "", ""
		v, measured := f[key]
		if measured {
			value = number(v)
		}
		if most, ok := targets[key]; ok {
			target = "≤ " + number(most)
			if measured && v > most {
				verdict = "  MISSED"
			}
		}
		fmt.Fprintf(&out, "%-34s %12s %12s%s\n", key, value, target, verdict)
	}
	return out.String()
}

// number shows four significant digits at most.
func number(v float64) string {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	if err != nil {
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}

// write writes the figures into a file. What could not be measured is null.
func (f figures) write(file string, chosen []measurement) error {
	all := map[string]*float64{}
	for _, key := range keysOf(chosen) {
		all[key] = nil
		if v, ok := f[key]; ok {
			all[key] = &v
		}
	}
	return harness.WriteReport(file, all)
}

// quantile returns the least of the values that is not exceeded by a share q of them. There must be some.
func quantile(values []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(values))
	i := int(q*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// median returns the middle of the values, or the mean of the two in the middle. There must be some.
func median(values []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

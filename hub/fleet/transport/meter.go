package transport

import (
	"errors"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// What a member may send. Weight is an estimate of the memory that an answer takes once it is decoded: see weigh.
const (
	// maxAnswerWeight and maxEventWeight bound one answer, and one event of a watch.
	maxAnswerWeight = 64 << 20
	maxEventWeight  = 8 << 20
	// maxEvent bounds one event of a watch, in bytes. An etcd stores objects of 1.5 MiB at most.
	maxEvent = 4 << 20
	// meterBurst is how much weight may come at once, and meterRate how much in a second in the long run. A
	// Lease or a Namespace weighs about 3 KiB: 40,000 of them at once, and 5,000 changes a second. A member that leads
	// 1,000 namespaces with the fast timings sends 2,000: the answers to renewals, and what the watch shows of them.
	meterBurst = 128 << 20
	meterRate  = 16 << 20
	// readersBurst and readersRate are those for the registrations of readers, which tenants write.
	readersBurst = 32 << 20
	readersRate  = 4 << 20
)

// errTooMuch is what requests fail with while a member has sent too much.
var errTooMuch = errors.New("the member has sent more than the hub takes")

// Meter counts what a member sends: every byte of every answer and of every watch. It is a bucket that drains at
// a steady rate. While it is too full, nothing more is read and nothing more is asked.
type Meter struct {
	clock       clock.PassiveClock
	burst, rate int64
	exceeded    func(error)

	mu    sync.Mutex
	level int64 // at the time at
	at    time.Time
	told  bool
}

// NewMeter returns the meter of a member. exceeded is called once, when the member has sent too much, until Reset is called.
func NewMeter(c clock.PassiveClock, exceeded func(error)) *Meter {
	return &Meter{clock: c, burst: meterBurst, rate: meterRate, exceeded: exceeded, at: c.Now()}
}

// NewReadersMeter returns a meter for what tenants of the member can cause: the registrations of readers. Too much of
// it ends only requests for them.
func NewReadersMeter(c clock.PassiveClock) *Meter {
	return &Meter{clock: c, burst: readersBurst, rate: readersRate, exceeded: func(error) {}, at: c.Now()}
}

// Reset forgets what was sent.
func (m *Meter) Reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.level, m.at, m.told = 0, m.clock.Now(), false
}

// add counts a weight that has come, and returns an error if that is more than the hub takes.
func (m *Meter) add(weight int64) error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	now := m.clock.Now()
	drained := int64(now.Sub(m.at).Seconds() * float64(m.rate))
	if drained > 0 {
		m.level, m.at = max(0, m.level-drained), now
	}
	m.level = min(m.level+weight, 2*m.burst)
	full := m.level > m.burst
	m.mu.Unlock()
	if full {
		return m.refuse(errTooMuch)
	}
	return nil
}

// refuse tells whoever listens, once, that the member has sent too much.
func (m *Meter) refuse(err error) error {
	if m == nil {
		return err
	}
	m.mu.Lock()
	news := !m.told
	m.told = true
	m.mu.Unlock()
	if news {
		m.exceeded(err)
	}
	return err
}

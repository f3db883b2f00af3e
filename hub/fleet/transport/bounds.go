package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"
)

const (
	// paceBurst is how many bytes are read at once, and paceRate how many a second in the long run. Each object costs
	// objectCost more: 15,000 of them at once, and 1,700 changes a second, which take 0.4 cores. A member that leads
	// 1,000 namespaces with the fast timings shows 1,000 a second.
	paceBurst, paceRate = 64 << 20, 7 << 20
	objectCost          = 4 << 10
	// maxList bounds what is kept of one list, in bytes. Each object counts as listOverhead more, for what it takes once
	// it is decoded.
	maxList      = 16 << 20
	listOverhead = 512
	// maxHeld bounds what caches hold of a kind in a member, in bytes. Each object counts as heldOverhead more: structs,
	// maps, and its places in indexes. What is held may grow by heldReserve in sum: a renewal or a deletion makes it
	// some bytes longer.
	maxHeld      = 20 << 20
	heldReserve  = 1 << 20
	heldOverhead = 1 << 10
	// maxRead bounds what is being read of the answers of all members, in bytes: whole objects and events, and what is
	// kept of lists. Each member takes at most half of what the others leave, so that one which holds back its answers
	// does not fill it. smallAnswer is free: no renewal waits for room.
	maxRead     = 32 << 20
	smallAnswer = 64 << 10
)

// errNoRoom is returned for an answer while too many others are read.
var errNoRoom = errors.New("too many large answers are read at once: this one is asked for again")

// Room is what the answers of one member take, and those of all members.
type Room struct {
	all *atomic.Int64
	own atomic.Int64
}

// NewRoom returns the room of one member. all counts what all members take.
func NewRoom(all *atomic.Int64) *Room { return &Room{all: all} }

// share is the part of a room that one answer takes until it is released. A nil room has no bound.
type share struct {
	room  *Room
	taken int64
}

// grow takes room for an answer of which so many bytes are in memory.
func (s *share) grow(to int) error {
	if s == nil || s.room == nil {
		return nil
	}
	more := int64(to-smallAnswer) - s.taken
	if more <= 0 {
		return nil
	}
	if s.take(more) > maxRead {
		return errNoRoom
	}
	return nil
}

// take takes that much, and returns what all members take, with this one counted twice.
func (s *share) take(more int64) int64 {
	s.taken += more
	return s.room.own.Add(more) + s.room.all.Add(more)
}

func (s *share) release() {
	if s.taken > 0 {
		s.take(-s.taken)
	}
}

// roomy is a body that gives its room back when it is closed.
type roomy struct {
	io.ReadCloser
	share *share
}

func (b roomy) Close() error {
	b.share.release()
	return b.ReadCloser.Close()
}

// pace is how fast something is read. What comes faster waits, and so does the member that sends it.
type pace = rate.Limiter

func newPace() *pace { return rate.NewLimiter(paceRate, paceBurst) }

// paced reads at a pace. Without one nothing waits.
type paced struct {
	ctx  context.Context
	from io.Reader
	pace *pace
}

func (p paced) Read(b []byte) (int, error) {
	n, err := p.from.Read(b)
	if waited := p.wait(n); waited != nil {
		return n, waited
	}
	return n, err
}

// wait waits until n more bytes may be read.
func (p paced) wait(n int) error {
	if p.pace == nil || n == 0 {
		return nil
	}
	return p.pace.WaitN(p.ctx, min(n, paceBurst))
}

// Held counts what the caches of a member hold of one kind, and keeps out what exceeds the bound.
type Held struct {
	exceeded func(error)
	what     string

	mu    sync.Mutex
	sizes map[string]int // of the objects, by their names
	bytes int
	full  bool
}

// NewHeld returns a count of what is held of a kind. exceeded is called with an error when something was left out, and
// with nil when all is held again.
func NewHeld(what string, exceeded func(error)) *Held {
	return &Held{what: what, exceeded: exceeded, sizes: map[string]int{}}
}

// begin starts a new list of everything. A nil Held counts nothing.
func (h *Held) begin() {
	if h == nil {
		return
	}
	h.mu.Lock()
	was := h.full
	h.sizes, h.bytes, h.full = map[string]int{}, 0, false
	h.mu.Unlock()
	if was {
		h.exceeded(nil)
	}
}

// admit reports whether there is room for an object, and counts it.
func (h *Held) admit(object []byte) bool {
	if h == nil {
		return true
	}
	name, size := nameOf(object), len(object)+heldOverhead
	h.mu.Lock()
	was, held := h.sizes[name]
	more, most := size-was, maxHeld
	if held {
		most += heldReserve
	}
	fits := h.bytes+more <= most
	if fits {
		h.sizes[name] = size
		h.bytes += more
	}
	first := !fits && !h.full
	h.full = h.full || !fits
	h.mu.Unlock()
	if first {
		h.exceeded(fmt.Errorf("it has more than %d MiB of %s, each with %d KiB for itself: %s and others are not seen, or "+
			"as they were", maxHeld>>20, h.what, heldOverhead>>10, Shorten(name)))
	}
	return fits
}

// remove counts an object no more, and reports whether it was held. again is true if something was left out that fits
// by now: a new list shows it.
func (h *Held) remove(object []byte) (held, again bool) {
	if h == nil {
		return true, false
	}
	name := nameOf(object)
	h.mu.Lock()
	defer h.mu.Unlock()
	size, held := h.sizes[name]
	h.bytes -= size
	delete(h.sizes, name)
	return held, held && h.full && h.bytes < maxHeld*9/10
}

// nameOf is the namespace and the name of an object that was kept.
func nameOf(object []byte) string {
	metadata := textOf(object, 1)
	return string(textOf(metadata, 3)) + "/" + string(textOf(metadata, 1))
}

package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/time/rate"
)

// How much is read of a member. What comes faster waits, and so does the member that sends it.
const (
	// paceBurst is how many bytes are read at once, and paceRate how many in a second in the long run. Each object costs
	// objectCost more: 15,000 of them at once, and 1,700 changes a second, which take 0.4 cores. A member that leads 1,000
	// namespaces with the fast timings shows 1,000 a second.
	paceBurst, paceRate = 64 << 20, 7 << 20
	objectCost          = 4 << 10
	// roomOfMember and roomOfAll bound what is kept of answers while they are read, in bytes. smallAnswer is free: no
	// renewal waits for room.
	roomOfMember, roomOfAll = 16 << 20, 32 << 20
	smallAnswer             = 64 << 10
	// maxHeld and maxHeldBytes bound what caches hold of a kind in a member. Where a member floods all kinds at once,
	// the hub stays below 256 MiB.
	maxHeld      = 15_000
	maxHeldBytes = 20 << 20
	// heldOverhead is what an object takes beside its texts: structs, maps, and its places in indexes.
	heldOverhead = 1 << 10
)

// errNoRoom is returned for an answer while too many others are read.
var errNoRoom = errors.New("too many large answers are read at once: this one is asked for again")

// NewPace returns the pace at which something is read.
func NewPace() *rate.Limiter { return rate.NewLimiter(paceRate, paceBurst) }

// paced reads at a pace.
type paced struct {
	ctx  context.Context
	from io.Reader
	pace *rate.Limiter
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

// Room bounds what is kept of answers while they are read.
type Room struct {
	of *Room // that this is a part of; nil: of none

	mu   sync.Mutex
	left int
}

// NewRoom returns the room of all members, or that of one if it is a part of that.
func NewRoom(of *Room) *Room {
	if of == nil {
		return &Room{left: roomOfAll}
	}
	return &Room{of: of, left: roomOfMember}
}

// take takes so many bytes, and reports whether there was room for them.
func (r *Room) take(bytes int) bool {
	if r == nil {
		return true
	}
	r.mu.Lock()
	fits := r.left >= bytes
	if fits {
		r.left -= bytes
	}
	r.mu.Unlock()
	if fits && !r.of.take(bytes) {
		r.give(bytes)
		return false
	}
	return fits
}

// give gives back what was taken of this room.
func (r *Room) give(bytes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left += bytes
}

// giveAll gives back what was taken, here and above.
func (r *Room) giveAll(bytes int) {
	for ; r != nil; r = r.of {
		r.give(bytes)
	}
}

// share is what an answer has taken of a room.
type share struct {
	of          *Room
	used, taken int
}

// grow takes room for more bytes. What is small needs none.
func (s *share) grow(bytes int) error {
	s.used += bytes
	more := s.used - s.taken - smallAnswer
	if more <= 0 {
		return nil
	}
	if !s.of.take(more) {
		return errNoRoom
	}
	s.taken += more
	return nil
}

func (s *share) release() {
	s.of.giveAll(s.taken)
	s.taken = 0
}

// Held counts what the caches of a member hold of one kind, and lets no more into them than is bounded.
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

// begin notes that a new list of all begins.
func (h *Held) begin() {
	h.mu.Lock()
	h.sizes, h.bytes = map[string]int{}, 0
	was := h.full
	h.full = false
	h.mu.Unlock()
	if was {
		h.exceeded(nil)
	}
}

// admit reports whether there is room for an object, and counts it.
func (h *Held) admit(name string, size int) bool {
	size += heldOverhead
	h.mu.Lock()
	was, known := h.sizes[name]
	fits := h.bytes+size-was <= maxHeldBytes && (known || len(h.sizes) < maxHeld)
	if fits {
		h.sizes[name] = size
		h.bytes += size - was
	}
	news := !fits && !h.full
	h.full = h.full || !fits
	h.mu.Unlock()
	if news {
		h.exceeded(fmt.Errorf("it has more than %d %s, or more than %d MiB of them: %s and others are not seen",
			maxHeld, h.what, maxHeldBytes>>20, Shorten(name)))
	}
	return fits
}

// remove notes that an object is gone, and reports whether it was held.
func (h *Held) remove(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	size, known := h.sizes[name]
	h.bytes -= size
	delete(h.sizes, name)
	return known
}

// hasRoomAgain reports whether something was left out for which there is room by now: a new list shows it.
func (h *Held) hasRoomAgain() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.full && len(h.sizes) < maxHeld*9/10 && h.bytes < maxHeldBytes*9/10
}

package publish

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/election"
)

// explorer looks at every state of a scope, the earliest first, so that the first violation is the earliest that there
// is.
type explorer struct {
	scope
	firstEpoch int64
	asked      map[string]acts
	buffer     []byte
	seeds      [2]maphash.Seed

	before   []string        // what happened before a scope begins
	outlines map[string]bool // what there is to be seen of each state, if anybody wants to know

	index  map[key]struct{}
	parent []int32
	by     []move
}

// findings is what an exploration found.
type findings struct {
	States      int  `json:"states"`
	Transitions int  `json:"transitions"`
	Depth       int  `json:"depth"`
	Ticks       int  `json:"ticks"`
	Takeovers   int  `json:"takeovers"` // how often at most another replica was elected
	Closed      bool `json:"closed"`    // nothing new came any more, however much time passed
	// Alone is how many states were looked at in which the parts of a breakage show nothing alone, because each covers
	// for the other.
	Alone     int `json:"alone,omitempty"`
	violation string
	trace     []string
}

func (f findings) end() string {
	if f.Closed {
		return "closed"
	}
	return "open"
}

func (f findings) story() string { return strings.Join(f.trace, "\n  ") }

func newExplorer(sc scope) *explorer {
	return &explorer{
		scope: sc, firstEpoch: max(21, lease.EpochFloor(origin)), // the namespace was led before
		asked: map[string]acts{}, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		index: map[key]struct{}{},
	}
}

// node is a state that is still to be looked at, its number, and how many moves away it is.
type node struct {
	s     *world
	id    int32
	depth int
}

// explore looks at every state, those of one tick before those of the next, so that each is found as early as it can
// be reached. It stops at the first violation, or when there are more than limit states.
func (e *explorer) explore(limit int) (findings, error) {
	root := e.start(e)
	e.draw(root)
	var f findings
	if f.violation = e.violation(root); f.violation != "" {
		return f, nil
	}
	moves := e.allMoves()
	this := []node{{root, e.add(e.key(root), -1, move{}), 0}}
	for len(this) > 0 {
		var next []node
		for i := 0; i < len(this); i++ {
			n := this[i]
			this[i].s = nil // the garbage collector may have it
			f.Ticks, f.Depth = n.s.now, max(f.Depth, n.depth)
			f.Takeovers = max(f.Takeovers, n.s.election.transitions-root.election.transitions)
			for _, mv := range moves {
				s := e.do(n.s, mv)
				if s == nil {
					continue
				}
				f.Transitions++
				wrong := e.violation(s)
				k := e.key(s)
				_, old := e.index[k]
				if old && wrong == "" {
					continue
				}
				if old {
					k = key{} // a violation needs a number of its own to be traced
				}
				e.draw(s)
				id := e.add(k, n.id, mv)
				if wrong != "" {
					f.States, f.Depth, f.violation, f.trace = len(e.by), n.depth+1, wrong, e.trace(root, id)
					return f, nil
				}
				if mv.what == tickPasses {
					next = append(next, node{s, id, n.depth + 1})
				} else {
					this = append(this, node{s, id, n.depth + 1})
				}
			}
			if len(e.by) > limit {
				return f, fmt.Errorf("scope %s has more than %d states", e.name, limit)
			}
		}
		this = next
	}
	f.States, f.Closed = len(e.by), f.Ticks < e.ticks
	return f, nil
}

// add notes a state and how it was reached.
func (e *explorer) add(k key, parent int32, by move) int32 {
	e.index[k] = struct{}{}
	e.parent = append(e.parent, parent)
	e.by = append(e.by, by)
	return int32(len(e.by) - 1)
}

// trace returns how a state was reached.
func (e *explorer) trace(root *world, id int32) []string {
	var path []move
	for ; e.parent[id] >= 0; id = e.parent[id] {
		path = append(path, e.by[id])
	}
	lines := append(slices.Clone(e.before),
		fmt.Sprintf("— %d s — D %d s, ε %d s, h %d s; ahead of the slowest clock: hub A %+d s, hub B %+d s; record: %s",
			root.now, e.d, e.skew, exploredH, e.wrong[0], e.wrong[1], e.sayRecord(root.record)))
	s := root
	for i := len(path) - 1; i >= 0; i-- {
		after := e.do(s, path[i])
		_ = e.violation(after)
		lines = append(lines, e.say(path[i], after))
		s = after
	}
	return lines
}

func clockOf(t time.Time) string {
	if t.IsZero() {
		return "—"
	}
	return fmt.Sprintf("%+gs", t.Sub(origin).Seconds())
}

// cold is a hub that has never done anything.
func cold(e *explorer) *world {
	s := &world{record: &election.Record{}, election: ballot{holder: -1, released: true, renewed: origin.Add(-time.Hour),
		changed: -1000}}
	for x := range replicas {
		s.replicas[x] = &replica{wrong: e.wrong[x]}
	}
	for m := range e.sites {
		s.sites[m] = &site{}
	}
	return s
}

// inOrder is a tenure of A in which the best member leads and every Lease is in place.
func inOrder(e *explorer) *world {
	s := cold(e)
	for range 200 {
		var n *world
		for _, w := range []what{wins, reads, rulingArrives, rulingAnswers, arrives, answers, works, decidesFit} {
			for m := range uint8(e.sites) {
				if n == nil {
					n = e.do(s, move{what: w, m: m})
				}
				if n != nil && e.key(n) == e.key(s) {
					n = nil // nothing came of it
				}
			}
		}
		if n == nil {
			return s
		}
		s = n
	}
	panic("it does not settle")
}

// unrecorded is a settled world whose hub is another, as after a move: the record and the election are lost, and
// the Leases still stand.
func unrecorded(e *explorer) *world {
	s, c := inOrder(e), cold(e)
	s.replicas, s.election, s.record = c.replicas, c.election, c.record
	s.election.released = false // there is no Lease of the election
	s.version++
	return s
}

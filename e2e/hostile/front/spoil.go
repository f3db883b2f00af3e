package front

import (
	"cmp"
	"net/http"
	"slices"
	"sync"

	"github.com/leasecast/leasecast/e2e/hostile/worst"
)

// How large the worst answers are: within what is read of one object, and of what an API server may well send.
const (
	small = 255 << 10
	large = 15 << 20
)

// Spoiler answers requests of the reads that are chosen with their worst answers, one after the other. Each second
// request gets to the API server, so that the hub goes on to its next read. Of most reads, which come seldom, each is
// spoilt until all the answers that must be sent were. Its methods may be called from any goroutine.
type Spoiler struct {
	reads *Reads

	mu     sync.Mutex // guards what follows
	chosen map[Read]bool
	last   bool // of Leases, too
	plans  map[Read]*plan
	latest string // of the worst answers
}

// plan is what a read is answered with.
type plan struct {
	answers  []answer
	must     int // so many of the first answers are to be sent: the worst in each encoding, and one that is large
	requests int
	sent     int
}

// answer is one of the worst. Its status is that of HTTP.
type answer struct {
	worst.Body
	status int
}

// NewSpoiler makes a spoiler of what was read so far. It is an error if nobody knows how to spoil one of these reads.
func NewSpoiler(reads *Reads) (*Spoiler, error) {
	s := &Spoiler{reads: reads, plans: map[Read]*plan{}}
	for _, r := range reads.All() {
		p, err := newPlan(reads, r)
		if err != nil {
			return nil, err
		}
		s.plans[r] = p
	}
	return s, nil
}

func newPlan(reads *Reads, r Read) (*plan, error) {
	types, err := reads.Types(r)
	if err != nil {
		return nil, err
	}
	var first, second, others []answer
	for _, t := range types {
		first = append(first, answers(http.StatusOK, worst.Bodies(t.GroupVersionKind, t.Go, small))...)
		second = append(second, answers(http.StatusOK, worst.Bodies(t.GroupVersionKind, t.Go, large))...)
	}
	first = append(first, answers(http.StatusForbidden, worst.Errors(small))...)
	second = append(second, answers(http.StatusInternalServerError, worst.Errors(large))...)
	p := &plan{}
	for _, a := range slices.Concat(first, second) {
		if a.Worst {
			p.answers = append(p.answers, a)
		} else {
			others = append(others, a)
		}
	}
	// The small ones first: the hub may disconnect who sends a large one, and read nothing more for a while.
	p.must = len(p.answers)/2 + 1
	p.answers = append(p.answers, others...)
	return p, nil
}

func answers(status int, bodies []worst.Body) (all []answer) {
	for _, b := range bodies {
		all = append(all, answer{b, status})
	}
	return all
}

// Missing are the reads to which one of the answers that must be sent was not sent yet, those first that got the
// fewest.
func (s *Spoiler) Missing() (all []Read) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r, p := range s.plans {
		if p.sent < p.must {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b Read) int {
		return cmp.Or(cmp.Compare(s.plans[a].sent, s.plans[b].sent), cmp.Compare(a.String(), b.String()))
	})
	return all
}

// Disconnects reports whether the next of the answers that must be sent is a large one about a Lease: the hub
// disconnects who sends it.
func (s *Spoiler) Disconnects(r Read) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.plans[r]
	return p != nil && p.disconnects(r)
}

func (p *plan) disconnects(r Read) bool {
	return r.Resource == "leases" && r.Verb != "list" && p.sent == p.must-1
}

// Choose has these reads spoilt from now on, and no others. Answers for which the hub disconnects are sent if last is
// set.
func (s *Spoiler) Choose(reads []Read, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.chosen, s.last = map[Read]bool{}, last
	for _, r := range reads {
		s.chosen[r] = true
	}
}

// Sent counts the worst answers so far, by the read, and names the latest of them.
func (s *Spoiler) Sent() (sent map[string]int, latest string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent = map[string]int{}
	for r, p := range s.plans {
		sent[r.String()] = p.sent
	}
	return sent, s.latest
}

// Count returns how many worst answers were sent.
func (s *Spoiler) Count() (sent int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.plans {
		sent += p.sent
	}
	return sent
}

// Act is that of the spoiler.
func (s *Spoiler) Act(w http.ResponseWriter, r *http.Request, honest http.Handler) {
	is, err := ReadOf(r)
	if err != nil {
		honest.ServeHTTP(w, r)
		return
	}
	a, ok := s.next(is)
	if !ok {
		honest.ServeHTTP(w, r)
		return
	}
	switch {
	case is.IsWatch() && a.status == http.StatusOK:
		w.Header().Set("Content-Type", a.WatchType)
		_, _ = w.Write(a.Event("ADDED")) // the hub may have hung up
		return
	case is.IsWatch():
		w.Header().Set("Content-Type", a.WatchType)
		_, _ = w.Write(a.Event("ERROR"))
		return
	case is.Writes() && a.status == http.StatusOK:
		honest.ServeHTTP(&nowhere{http.Header{}}, r) // it is written, and only the answer lies
	}
	w.Header().Set("Content-Type", a.ContentType)
	w.WriteHeader(a.status)
	_, _ = w.Write(a.Object())
}

// next is what to answer a request with, unless the API server is to answer it.
func (s *Spoiler) next(r Read) (answer, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.plans[r]
	if p == nil { // nobody has read this before
		made, err := newPlan(s.reads, r)
		if err != nil {
			return answer{}, false // its kind will be seen in the answer, or missed at the end
		}
		p = made
		s.plans[r], s.chosen[r] = p, true
	}
	p.requests++
	isOften := r.IsWatch() || r.Verb == "get" && slices.Contains([]string{"leases", "namespaces"}, r.Resource)
	if !s.chosen[r] || !s.last && p.disconnects(r) || p.requests%2 == 1 && (isOften || p.sent >= p.must) {
		return answer{}, false
	}
	a := p.answers[p.sent%len(p.answers)]
	p.sent++
	s.latest = r.String() + ": " + a.Name
	return a, true
}

// nowhere is where answers go that nobody reads.
type nowhere struct{ header http.Header }

func (n *nowhere) Header() http.Header         { return n.header }
func (n *nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (n *nowhere) WriteHeader(int)             {}

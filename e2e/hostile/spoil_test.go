package hostile

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
	mu     sync.Mutex // guards what follows
	chosen map[Read]bool
	plans  map[Read]*plan
	latest string // of the worst answers
}

// plan is what a read is answered with.
type plan struct {
	answers  []answer
	requests int
	sent     int
}

// firstAnswers is how many of the first answers must be sent: the worst one, and an error.
const firstAnswers = 2

// answer is one of the worst. Its status is that of HTTP.
type answer struct {
	worst.Body
	status int
	large  bool
}

// NewSpoiler makes a spoiler of what was read so far. It is an error if nobody knows how to spoil one of these reads.
func NewSpoiler(reads *Reads) (*Spoiler, error) {
	s := &Spoiler{plans: map[Read]*plan{}}
	for _, r := range reads.All() {
		p, err := newPlan(r)
		if err != nil {
			return nil, err
		}
		s.plans[r] = p
	}
	return s, nil
}

func newPlan(r Read) (*plan, error) {
	types, err := TypesOf(r)
	if err != nil {
		return nil, err
	}
	var objects, others []answer
	for _, t := range types {
		objects = append(objects, answers(http.StatusOK, false, worst.Bodies(t.GroupVersionKind, t.Go, small))...)
		others = append(others, answers(http.StatusOK, true, worst.Bodies(t.GroupVersionKind, t.Go, large))...)
	}
	errs := answers(http.StatusForbidden, false, worst.Errors(small))
	others = append(others, answers(http.StatusInternalServerError, true, worst.Errors(large))...)
	return &plan{answers: slices.Concat(objects[:1], errs[:1], objects[1:], errs[1:], others)}, nil
}

func answers(status int, large bool, bodies []worst.Body) (all []answer) {
	for _, b := range bodies {
		all = append(all, answer{b, status, large})
	}
	return all
}

// Missing are the reads to which one of the answers that must be sent was not sent yet, those first that got the
// fewest.
func (s *Spoiler) Missing() (all []Read) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r, p := range s.plans {
		if p.sent < firstAnswers {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b Read) int {
		return cmp.Or(cmp.Compare(s.plans[a].sent, s.plans[b].sent), cmp.Compare(a.String(), b.String()))
	})
	return all
}

// Choose has these reads spoilt from now on, and no others.
func (s *Spoiler) Choose(reads []Read) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.chosen = map[Read]bool{}
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
	if is.Writes() && a.status == http.StatusOK {
		honest.ServeHTTP(&nowhere{http.Header{}}, r) // it is written, and only the answer lies
	}
	a.send(w, is)
}

// send answers a read.
func (a answer) send(w http.ResponseWriter, r Read) {
	switch {
	case r.IsWatch() && a.status == http.StatusOK:
		w.Header().Set("Content-Type", a.WatchType)
		_, _ = w.Write(a.Event("ADDED")) // the hub may have hung up
	case r.IsWatch():
		w.Header().Set("Content-Type", a.WatchType)
		_, _ = w.Write(a.Event("ERROR"))
	default:
		w.Header().Set("Content-Type", a.ContentType)
		w.WriteHeader(a.status)
		_, _ = w.Write(a.Object())
	}
}

// next is what to answer a request with, unless the API server is to answer it.
func (s *Spoiler) next(r Read) (answer, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.plans[r]
	if p == nil { // nobody has read this before
		made, err := newPlan(r)
		if err != nil {
			return answer{}, false // the API server answers and records it, and the test fails for it
		}
		p = made
		s.plans[r], s.chosen[r] = p, true
	}
	p.requests++
	isOften := r.Verb == "get" && slices.Contains([]string{"leases", "namespaces"}, r.Resource)
	if !s.chosen[r] || p.requests%2 == 1 && (isOften || p.sent >= firstAnswers) {
		return answer{}, false
	}
	a := p.answers[p.sent%len(p.answers)]
	p.sent++
	if a.large && r.Resource == "leases" && r.Verb != "list" {
		return answer{}, false // the hub would disconnect, and read nothing more
	}
	s.latest = r.String() + ": " + a.Name
	return a, true
}

// nowhere is where answers go that nobody reads.
type nowhere struct{ header http.Header }

func (n *nowhere) Header() http.Header         { return n.header }
func (n *nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (n *nowhere) WriteHeader(int)             {}

// Package register is the outside world of the fault drills: a store that no cluster owns. Each
// namespace has two registers in it, and each write goes to both at one instant: the plain one takes everything, the
// fenced one refuses a write whose epoch is below the highest that it has taken.
package register

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

// State is what the fenced register of a namespace holds.
type State struct {
	Epoch int64  `json:"epoch"`
	Value string `json:"value"`
}

// Write is one write as the store saw it.
type Write struct {
	At        time.Duration // on the boot clock
	Namespace string
	State
	// Taken: the fenced register took it. The plain one always does.
	Taken bool
}

// ErrRefused is the error of a write that the fenced register did not take.
var ErrRefused = errors.New("refused: the register has seen a higher epoch")

// Server is the store. It is safe for concurrent use.
type Server struct {
	*httptest.Server
	clock lease.Clock

	mu     sync.Mutex
	fenced map[string]State
	writes []Write // since the last Forget, in order
}

// Serve starts a store on a free port of loopback. The caller must Close it.
func Serve(clock lease.Clock) *Server {
	s := &Server{clock: clock, fenced: map[string]State{}}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	return s
}

// Writes returns what was written since the last Forget, in order.
func (s *Server) Writes() []Write {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.writes)
}

// Forget drops the list of the writes before the instant, not their effect.
func (s *Server) Forget(before time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes = slices.DeleteFunc(s.writes, func(w Write) bool { return w.At < before })
}

// serve answers a GET with the fenced register of the namespace that the path names. A POST writes to both registers.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	namespace := strings.TrimPrefix(r.URL.Path, "/")
	if r.Method == http.MethodGet {
		s.mu.Lock()
		state := s.fenced[namespace]
		s.mu.Unlock()
		_ = json.NewEncoder(w).Encode(state) // an error means that the client is gone
		return
	}
	var state State
	if err := json.NewDecoder(r.Body).Decode(&state); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	} else if !s.write(namespace, state) {
		w.WriteHeader(http.StatusConflict)
	}
}

func (s *Server) write(namespace string, state State) (taken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken = state.Epoch >= s.fenced[namespace].Epoch
	if taken {
		s.fenced[namespace] = state
	}
	s.writes = append(s.writes, Write{At: s.clock.Now().Boot, Namespace: namespace, State: state, Taken: taken})
	return taken
}

// Client is a user of the store.
type Client struct {
	URL  string
	HTTP http.Client
}

// Write writes to both registers. It returns nil if the fenced one took the write, and [ErrRefused] if it did not.
// After any other error the result is unknown.
func (c *Client) Write(ctx context.Context, namespace string, state State) error {
	body, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("register: %w", err)
	}
	_, err = c.do(ctx, http.MethodPost, namespace, body)
	return err
}

// Read reads the fenced register.
func (c *Client) Read(ctx context.Context, namespace string) (state State, err error) {
	return c.do(ctx, http.MethodGet, namespace, nil)
}

func (c *Client) do(ctx context.Context, method, namespace string, body []byte) (state State, err error) {
	request, err := http.NewRequestWithContext(ctx, method, c.URL+"/"+namespace, bytes.NewReader(body))
	if err != nil {
		return state, fmt.Errorf("register: %w", err)
	}
	answer, err := c.HTTP.Do(request)
	if err != nil {
		return state, fmt.Errorf("register: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	switch {
	case answer.StatusCode == http.StatusConflict:
		return state, ErrRefused
	case answer.StatusCode != http.StatusOK:
		return state, fmt.Errorf("register: %s", answer.Status)
	case method == http.MethodGet:
		err = json.NewDecoder(answer.Body).Decode(&state)
	}
	return state, err
}

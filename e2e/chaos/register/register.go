// Package register is the outside world of the fault drills: a store that no cluster owns. Each
// namespace has two registers in it, and each write goes to both at one instant: the plain one takes everything, the
// fenced one refuses a write whose epoch is below the highest that it has taken.
package register

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
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

// ErrRefused is what a client gets for a write that the fenced register did not take.
var ErrRefused = errors.New("refused: the register has seen a higher epoch")

// Server is the store. It is safe for concurrent use.
type Server struct {
	clock  lease.Clock
	listen net.Listener
	http   *http.Server
	done   chan struct{}

	mu     sync.Mutex
	fenced map[string]State
	writes []Write // since the last Forget, in order
}

// Serve starts a store on a free port of loopback. The caller must Close it.
func Serve(clock lease.Clock) (*Server, error) {
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("register: %w", err)
	}
	s := &Server{clock: clock, listen: listen, done: make(chan struct{}), fenced: map[string]State{}}
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(s.done)
		_ = s.http.Serve(listen) // returns when the server is closed
	}()
	return s, nil
}

// URL is where clients reach the store.
func (s *Server) URL() string { return "http://" + s.listen.Addr().String() }

// Close ends the store.
func (s *Server) Close() error {
	err := s.http.Close()
	<-s.done
	return err
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

// ServeHTTP implements http.Handler: GET reads the fenced register of the namespace that the path names, POST writes to
// both.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	namespace := strings.TrimPrefix(r.URL.Path, "/")
	if r.Method == http.MethodGet {
		s.mu.Lock()
		state := s.fenced[namespace]
		s.mu.Unlock()
		_ = json.NewEncoder(w).Encode(state) // an error means that the client is gone
		return
	}
	query := r.URL.Query()
	epoch, err := strconv.ParseInt(query.Get("epoch"), 10, 64)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if !s.write(namespace, State{epoch, query.Get("value")}) {
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

// Write writes to both registers. nil says that the fenced one took it, [ErrRefused] that it did not; after any other
// error nobody knows.
func (c *Client) Write(ctx context.Context, namespace string, state State) error {
	query := url.Values{"epoch": {strconv.FormatInt(state.Epoch, 10)}, "value": {state.Value}}
	_, err := c.do(ctx, http.MethodPost, namespace+"?"+query.Encode())
	return err
}

// Read reads the fenced register.
func (c *Client) Read(ctx context.Context, namespace string) (state State, err error) {
	body, err := c.do(ctx, http.MethodGet, namespace)
	if err != nil {
		return State{}, err
	}
	if err := json.Unmarshal(body, &state); err != nil {
		return State{}, fmt.Errorf("register: %w", err)
	}
	return state, nil
}

func (c *Client) do(ctx context.Context, method, target string) (body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, method, c.URL+"/"+target, nil)
	if err != nil {
		return nil, fmt.Errorf("register: %w", err)
	}
	answer, err := c.HTTP.Do(request)
	if err != nil {
		return nil, fmt.Errorf("register: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err = io.ReadAll(answer.Body)
	switch {
	case err != nil:
		return nil, fmt.Errorf("register: %w", err)
	case answer.StatusCode == http.StatusConflict:
		return nil, ErrRefused
	case answer.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("register: %s: %s", answer.Status, strings.TrimSpace(string(body)))
	}
	return body, nil
}

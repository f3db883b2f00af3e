// Package seal keeps what a fleet's copies are sealed with: a Secret in the fleet's
// namespace that `clusterctl move` takes along. It also remembers the largest D that
// was ever sent, for the day on which the records are lost, and the largest ε under which
// anything was.
package seal

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

// SecretName is the name of the Secret in each fleet's namespace.
const SecretName = "leasecast-seal"

const (
	dataKey     = "key"
	dataLargest = "largest-lease-duration-seconds"
	dataSkew    = "largest-max-clock-skew"
	keySize     = 32
	callTimeout = 10 * time.Second
)

// ErrBroken says that the Secret exists but holds no usable seal. The hub then writes
// nothing for that fleet. Restore the Secret, or delete it: copies sealed with the lost
// key are then no longer believed, and every namespace gets a new term.
var ErrBroken = errors.New("the Secret holds no usable seal")

// Seal is what the Secret holds.
type Seal struct {
	Key lease.Key
	// Largest is the largest D that any copy of the fleet can have carried.
	Largest time.Duration
	// LargestSkew is the largest ε of any policy under which a copy of the fleet can have been
	// sent: a takeover counts with it, because nothing else tells it.
	LargestSkew time.Duration
}

// Store reads and writes the seals of all fleets. It is safe for concurrent use.
type Store struct {
	reader client.Reader // live, so that a Secret made by another replica is seen
	writer client.Client

	mu    sync.Mutex // never held across I/O
	seals map[string]Seal
}

// NewStore returns a store. reader must not be a cache.
func NewStore(reader client.Reader, writer client.Client) *Store {
	return &Store{reader: reader, writer: writer, seals: map[string]Seal{}}
}

// Load returns the seal of a fleet, made if there is none.
func (s *Store) Load(ctx context.Context, fleet string) (Seal, error) {
	if seal, ok := s.cached(fleet); ok {
		return seal, nil
	}
	return s.read(ctx, fleet, true)
}

// Find is Load, but makes none: without a Secret it returns the zero Seal. A hub that
// has not reached a cluster of the fleet yet may be the target of a move that has not
// brought the Secret so far.
func (s *Store) Find(ctx context.Context, fleet string) (Seal, error) {
	if seal, ok := s.cached(fleet); ok {
		return seal, nil
	}
	return s.read(ctx, fleet, false)
}

// Refresh is Load, but asks again what the Secret says. A move replaces a Secret that was
// left over from another fleet. One that was deleted is replaced by what is in use.
func (s *Store) Refresh(ctx context.Context, fleet string) (Seal, error) {
	known, ok := s.cached(fleet)
	seal, err := s.read(ctx, fleet, !ok)
	if err == nil && len(seal.Key) == 0 {
		return known, nil
	}
	return seal, err
}

// read asks what the Secret says, and makes it if it is missing and that is asked for.
func (s *Store) read(ctx context.Context, fleet string, create bool) (Seal, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var secret corev1.Secret
	err := s.reader.Get(ctx, types.NamespacedName{Namespace: fleet, Name: SecretName}, &secret)
	if apierrors.IsNotFound(err) {
		if !create {
			return Seal{}, nil
		}
		key := make([]byte, keySize)
		_, _ = rand.Read(key) // never fails
		secret = *secretOf(fleet, Seal{Key: key})
		if err = s.writer.Create(ctx, &secret); apierrors.IsAlreadyExists(err) {
			// Somebody was faster, in this process or another one: theirs counts.
			secret = corev1.Secret{}
			err = s.reader.Get(ctx, types.NamespacedName{Namespace: fleet, Name: SecretName}, &secret)
		}
	}
	if err != nil {
		return Seal{}, fmt.Errorf("secret %s/%s: %w", fleet, SecretName, err)
	}
	seal, err := parse(&secret)
	if err != nil {
		return Seal{}, fmt.Errorf("secret %s/%s: %w", fleet, SecretName, err)
	}
	s.keep(fleet, seal)
	return seal, nil
}

// Raise sees to it that the Secret remembers a D and an ε at least this large. Call it before
// any record or copy depends on them; it costs nothing as long as there is nothing to raise. A Secret that was deleted is made again with the key in
// use; one with another key is ErrBroken.
func (s *Store) Raise(ctx context.Context, fleet string, d, skew time.Duration) error {
	seal, err := s.Load(ctx, fleet)
	if err != nil || d <= seal.Largest && skew <= seal.LargestSkew {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if seal, err = s.raise(ctx, fleet, Seal{Key: seal.Key, Largest: max(d, seal.Largest), LargestSkew: max(skew, seal.LargestSkew)}); err != nil {
		return fmt.Errorf("secret %s/%s: %w", fleet, SecretName, err)
	}
	s.keep(fleet, seal)
	return nil
}

// raise writes a seal, unless the Secret says at least as much, and returns what the
// Secret says then.
func (s *Store) raise(ctx context.Context, fleet string, want Seal) (Seal, error) {
	var secret corev1.Secret
	err := s.reader.Get(ctx, types.NamespacedName{Namespace: fleet, Name: SecretName}, &secret)
	if apierrors.IsNotFound(err) {
		return want, s.writer.Create(ctx, secretOf(fleet, want))
	}
	if err != nil {
		return Seal{}, err
	}
	found, err := parse(&secret)
	switch {
	case err != nil:
		return Seal{}, err
	case !bytes.Equal(found.Key, want.Key):
		return Seal{}, fmt.Errorf("%w: %s is not the one in use: restore it, or restart the hub", ErrBroken, dataKey)
	case found.Largest >= want.Largest && found.LargestSkew >= want.LargestSkew:
		return found, nil // somebody else raised it
	}
	want.Largest, want.LargestSkew = max(want.Largest, found.Largest), max(want.LargestSkew, found.LargestSkew)
	maps.Copy(secret.Data, secretOf(fleet, want).Data)
	return want, s.writer.Update(ctx, &secret)
}

func (s *Store) cached(fleet string) (Seal, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seal, ok := s.seals[fleet]
	return seal, ok
}

func (s *Store) keep(fleet string, seal Seal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.seals[fleet]; bytes.Equal(known.Key, seal.Key) {
		seal.Largest, seal.LargestSkew = max(seal.Largest, known.Largest), max(seal.LargestSkew, known.LargestSkew) // calls may end in any order
	}
	s.seals[fleet] = seal
}

// secretOf is the Secret that holds a seal.
func secretOf(fleet string, seal Seal) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fleet, Name: SecretName,
			Labels: map[string]string{
				v1alpha1.MoveLabel:      "",
				v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue,
			},
		},
		Data: map[string][]byte{
			dataKey:     seal.Key,
			dataLargest: []byte(strconv.FormatInt(int64(seal.Largest/time.Second), 10)),
			dataSkew:    []byte(seal.LargestSkew.String()),
		},
	}
}

// parse reads a seal. Its errors say nothing of what the Secret holds.
func parse(secret *corev1.Secret) (Seal, error) {
	key := secret.Data[dataKey]
	if len(key) != keySize {
		return Seal{}, fmt.Errorf("%w: %s must have %d bytes", ErrBroken, dataKey, keySize)
	}
	seconds, err := strconv.ParseInt(string(secret.Data[dataLargest]), 10, 32)
	if err != nil || seconds < 0 {
		return Seal{}, fmt.Errorf("%w: %s must be a number of seconds", ErrBroken, dataLargest)
	}
	skew, err := time.ParseDuration(string(secret.Data[dataSkew]))
	if err != nil || skew < 0 {
		return Seal{}, fmt.Errorf("%w: %s must be a duration, such as 1s", ErrBroken, dataSkew)
	}
	return Seal{Key: key, Largest: time.Duration(seconds) * time.Second, LargestSkew: skew}, nil
}

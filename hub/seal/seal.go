// Package seal keeps the key that a fleet's Leases are sealed with: in a Secret in the fleet's namespace that
// `clusterctl move` takes along. The Secret also holds, for each policy, the largest D, ε and stop time of anything
// that may have been sent. They count if a record is lost or older (bounds.go).
//
// The mark on the Secret names the installation of the hub that serves the fleet. Of two on one management cluster,
// the first one that put its mark there serves it.
package seal

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// SecretName is the name of the Secret in each fleet's namespace.
const SecretName = "leasecast-seal"

const (
	dataKey      = "key"
	dataPolicies = "policies"
	keySize      = 32
	callTimeout  = 10 * time.Second
	serveTries   = 3
	// replacesAnnotation has the resourceVersion of the Secret that a write has replaced.
	replacesAnnotation = "leasecast.dev/replaces"
)

// MaxStop is the largest stop time that a policy can ask for.
const MaxStop = 5 * time.Hour

// ErrBroken means that the Secret exists but holds no usable seal. The hub then writes nothing for that fleet. A
// Secret that is merely empty is not broken (empty.go).
//
// Restore the Secret, or delete it. After a deletion, Leases that were sealed with the lost key are not trusted,
// and every namespace gets a new term.
var ErrBroken = errors.New("the Secret holds no usable seal")

// Seal is the content of the Secret.
type Seal struct {
	Key Key
	// Policies holds the bounds of each policy by name.
	Policies map[string]Bounds
}

// Store reads and writes the seals of all fleets. It is safe for concurrent use.
type Store struct {
	reader client.Reader // live, so that a Secret made by another replica is seen
	writer client.Client

	mu       sync.Mutex // never held across I/O
	seals    map[string]Seal
	turns    map[string]int  // how often Raise or Lower has begun
	lowers   map[string]int  // which of these turns was the last of Lower
	lowering map[string]bool // a write of Lower may still arrive
}

// NewStore returns a store. reader must not be a cache.
func NewStore(reader client.Reader, writer client.Client) *Store {
	return &Store{
		reader: reader, writer: writer, seals: map[string]Seal{},
		turns: map[string]int{}, lowers: map[string]int{}, lowering: map[string]bool{},
	}
}

// Find returns the seal of a fleet. Without a Secret it returns the zero Seal: a hub that has not reached a cluster of
// the fleet yet may be the target of a move whose Secret has not arrived.
func (s *Store) Find(ctx context.Context, fleet string) (Seal, error) {
	if seal, ok := s.cached(fleet); ok {
		return seal, nil
	}
	return s.Refresh(ctx, fleet)
}

// Refresh is Find, but reads the Secret again: another replica may have raised its bounds. If the Secret is gone,
// broken, or another one, the known seal stays.
func (s *Store) Refresh(ctx context.Context, fleet string) (Seal, error) {
	known, ok := s.cached(fleet)
	lower := s.lastLower(fleet)
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	secret, err := s.read(ctx, fleet)
	if err != nil {
		return Seal{}, inSecret(fleet, err)
	}
	if isEmpty(secret) && !isLost(secret) {
		return known, nil
	}
	found, err := parse(secret)
	switch {
	case ok && (err != nil || !bytes.Equal(found.Key, known.Key)):
		return known, nil
	case err != nil:
		return Seal{}, inSecret(fleet, err)
	}
	return s.learn(fleet, found, lower), nil
}

// read returns the Secret of a fleet, or an empty one without a resourceVersion if it does not exist.
func (s *Store) read(ctx context.Context, fleet string) (*corev1.Secret, error) {
	var secret corev1.Secret
	err := s.reader.Get(ctx, types.NamespacedName{Namespace: fleet, Name: SecretName}, &secret)
	if apierrors.IsNotFound(err) {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleet, Name: SecretName}}, nil
	}
	return &secret, err
}

func inSecret(fleet string, err error) error {
	return fmt.Errorf("secret %s/%s: %w", fleet, SecretName, err)
}

// rewrite returns the seal in the Secret of a fleet. First it creates or updates the Secret if change has changed it
// and returned true, which it never does with an error.
func (s *Store) rewrite(
	ctx context.Context, fleet string, change func(*corev1.Secret) (writes bool, err error),
) (Seal, error) {
	secret, err := s.read(ctx, fleet)
	if err != nil {
		return Seal{}, err
	}
	writes, err := change(secret)
	switch {
	case writes && secret.ResourceVersion == "":
		err = s.writer.Create(ctx, secret)
	case writes:
		// An update that changes nothing would not keep an older one from its place.
		metav1.SetMetaDataAnnotation(&secret.ObjectMeta, replacesAnnotation, secret.ResourceVersion)
		err = s.writer.Update(ctx, secret)
	}
	if err != nil {
		return Seal{}, err
	}
	return parse(secret)
}

// ErrServed means that another installation on this management cluster serves the fleet.
var ErrServed = errors.New("the fleet is served by another installation of the hub")

// Serve returns the seal for the installation that serves the fleet, or is about to. It creates a missing one.
// It reads the Secret again, because a move replaces one that was left over from another fleet. It puts the mark of the
// installation on the Secret by compare-and-swap, and returns ErrServed if another installation's mark is there. It
// creates a deleted Secret again with the seal in use. If the fleet is moving, that is left to the target of the move.
// It calls moving only then, because the answer takes a list of Clusters.
func (s *Store) Serve(ctx context.Context, fleet, mark string, moving func() (bool, error)) (Seal, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	serve := func(secret *corev1.Secret) (bool, error) {
		known, _ := s.cached(fleet)
		return known.mark(secret, mark, moving)
	}
	lower := s.lastLower(fleet)
	seal, err := s.rewrite(ctx, fleet, serve)
	for tries := 1; tries < serveTries && otherWasFaster(err); tries++ {
		seal, err = s.rewrite(ctx, fleet, serve)
	}
	if err != nil {
		return Seal{}, inSecret(fleet, err)
	}
	s.learn(fleet, seal, lower)
	return seal, nil
}

// otherWasFaster reports whether another client wrote between a read and a write. Members that join at the same
// moment all create or mark the Secret.
func otherWasFaster(err error) bool {
	return apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err)
}

// mark puts the mark of an installation on a usable Secret, unless another installation's mark is there. It fills
// an empty Secret with the seal s, which is the zero Seal if none is known. It returns whether the Secret is to be
// written.
func (s Seal) mark(secret *corev1.Secret, mark string, moving func() (bool, error)) (writes bool, err error) {
	if namespace, ok := OtherInstallation(mark, MarkOf(secret)); ok {
		return false, fmt.Errorf("%w, in namespace %s", ErrServed, namespace)
	}
	if isEmpty(secret) {
		isKnown := s.Key != nil
		if !isKnown && isLost(secret) {
			return false, emptied(secret)
		}
		if !isKnown {
			s.Key = newKey()
		}
		fill(secret, s)
		if isKnown && secret.ResourceVersion == "" {
			if moves, err := moving(); moves || err != nil {
				return false, err
			}
		}
	} else if _, err := parse(secret); err != nil || MarkOf(secret) == mark {
		return false, err
	}
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, v1alpha1.HubAnnotation, mark)
	return true, nil
}

func newKey() Key {
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // never fails
	return key
}

// Raise makes the Secret hold bounds of a policy that are at least this large. Call it before any record or Lease
// depends on them. It sends no request if the bounds are large enough. It writes them again while they may still be
// lowered, so that a late write of Lower fails. It fails if Lower is called meanwhile. It creates a missing Secret,
// with the key in use or a first one. It returns ErrBroken if the Secret has another key.
func (s *Store) Raise(ctx context.Context, fleet, policy string, b Bounds) error {
	seal, err := s.Find(ctx, fleet)
	want := Seal{Policies: map[string]Bounds{policy: b}}
	if err != nil || seal.Key != nil && seal.covers(want) {
		return err
	}
	want = seal.raised(want)
	return s.change(ctx, fleet, s.begin(fleet), want, func(found Seal) (Seal, bool) {
		return found.raised(want), !found.covers(want) || s.isLowering(fleet)
	})
}

// Lower replaces the bounds of policies by smaller ones, and drops the bounds of other policies, if the Secret
// still holds before, and no Raise has begun since. Call it when everything promised under the larger bounds has
// passed. From the call on, Raise does not rely on the larger ones, even if the answer for the Secret is lost. After
// an error, call it again.
func (s *Store) Lower(ctx context.Context, fleet string, before, after map[string]Bounds) error {
	lowered, turn, ok := s.assume(fleet, before, after)
	if !ok {
		return nil
	}
	return s.change(ctx, fleet, turn, lowered, func(found Seal) (Seal, bool) {
		return lowered, maps.Equal(found.Policies, before) && s.isLast(fleet, turn)
	})
}

// begin returns the number of a Raise that begins.
func (s *Store) begin(fleet string) (turn int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turns[fleet]++
	return s.turns[fleet]
}

// isLast reports whether no other write has begun since.
func (s *Store) isLast(fleet string, turn int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turns[fleet] == turn
}

// end keeps what a write has left, and no write that began before it can arrive. Of Raise and Lower at once, neither
// counts: what one has left, the other may have replaced.
func (s *Store) end(fleet string, turn int, seal Seal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch lower := s.lowers[fleet]; {
	case lower > turn:
		lowered := errors.New("its bounds were lowered at the same time")
		return apierrors.NewConflict(corev1.Resource("secrets"), SecretName, lowered)
	case lower == turn && s.turns[fleet] != turn:
		return nil
	}
	delete(s.lowering, fleet)
	s.keep(fleet, seal)
	return nil
}

func (s *Store) isLowering(fleet string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lowering[fleet]
}

// assume lowers the bounds in the seal in use, if it still holds before, or has been lowered already. It returns the
// number of the Lower that begins.
func (s *Store) assume(fleet string, before, after map[string]Bounds) (lowered Seal, turn int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seal, known := s.seals[fleet]
	if !known || !maps.Equal(seal.Policies, before) && !maps.Equal(seal.Policies, after) {
		return Seal{}, 0, false
	}
	lowered = Seal{Key: seal.Key, Policies: after}
	s.seals[fleet], s.lowering[fleet] = lowered, true
	s.turns[fleet]++
	s.lowers[fleet] = s.turns[fleet]
	return lowered, s.turns[fleet], true
}

// change writes what of returns for the stored seal, if of also returns true. It fills an empty Secret with missing,
// whose key is the one in use, or nil if no seal is known.
func (s *Store) change(
	ctx context.Context, fleet string, turn int, missing Seal, of func(found Seal) (Seal, bool),
) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	isFirst := missing.Key == nil
	if isFirst {
		missing.Key = newKey()
	}
	seal, err := s.rewrite(ctx, fleet, func(secret *corev1.Secret) (bool, error) {
		if isEmpty(secret) && (!isFirst || !isLost(secret)) {
			fill(secret, missing)
			return true, nil
		}
		found, err := parse(secret)
		switch {
		case err != nil:
			return false, err
		case !isFirst && !bytes.Equal(found.Key, missing.Key):
			return false, fmt.Errorf("%w: %s is not the one in use: restore it, or restart the hub", ErrBroken, dataKey)
		}
		want, writes := of(found)
		if writes {
			fill(secret, want)
		}
		return writes, nil
	})
	if err == nil {
		err = s.end(fleet, turn, seal)
	}
	if err != nil {
		return inSecret(fleet, err)
	}
	return nil
}

func (s *Store) cached(fleet string) (Seal, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seal, ok := s.seals[fleet]
	return seal, ok
}

// learn is keep for a seal that was read when lower was the last Lower. If its bounds may have been lowered since, the
// larger ones do not count any more.
func (s *Store) learn(fleet string, seal Seal, lower int) Seal {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.seals[fleet]
	if (s.lowering[fleet] || s.lowers[fleet] != lower) && bytes.Equal(known.Key, seal.Key) {
		return known
	}
	return s.keep(fleet, seal)
}

func (s *Store) lastLower(fleet string) (turn int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lowers[fleet]
}

// keep keeps a seal, with the largest bounds that were kept under its key, and returns that. mu must be held.
func (s *Store) keep(fleet string, seal Seal) Seal {
	if known := s.seals[fleet]; bytes.Equal(known.Key, seal.Key) {
		seal = seal.raised(known) // calls may end in any order
	}
	s.seals[fleet] = seal
	return seal
}

// fill writes a seal into a Secret, and has clusterctl move take the Secret along.
func fill(secret *corev1.Secret, seal Seal) {
	metav1.SetMetaDataLabel(&secret.ObjectMeta, v1alpha1.MoveLabel, "")
	metav1.SetMetaDataLabel(&secret.ObjectMeta, v1alpha1.ManagedByLabel, v1alpha1.ManagedByValue)
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	maps.Copy(secret.Data, seal.data())
}

// parse parses a seal. Its errors contain no data of the Secret.
func parse(secret *corev1.Secret) (Seal, error) {
	if isEmpty(secret) {
		return Seal{}, emptied(secret)
	}
	key := secret.Data[dataKey]
	if len(key) != keySize {
		return Seal{}, fmt.Errorf("%w: %s must have %d bytes", ErrBroken, dataKey, keySize)
	}
	policies, err := parsePolicies(secret.Data[dataPolicies])
	return Seal{Key: key, Policies: policies}, err
}

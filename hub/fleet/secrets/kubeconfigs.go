package secrets

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/seal"
)

const (
	// KubeconfigSuffix ends the names of the Secrets `<cluster>-kubeconfig` in which Cluster API keeps kubeconfigs.
	KubeconfigSuffix = "-kubeconfig"
	// KubeconfigKey is under what key they are there.
	KubeconfigKey = "value"
	// MaxKubeconfig bounds a kubeconfig that is kept, in bytes: a longer one would not be parsed.
	MaxKubeconfig = transport.MaxKubeconfig
	// MaxKubeconfigs bounds how many are kept for each fleet: 32 MiB.
	MaxKubeconfigs = 512
)

// Kubeconfig is what is known of the kubeconfig of a Cluster.
type Kubeconfig struct {
	Value string
	// Missing says why there is none, and Refused why it is not kept. One of the three is set.
	Missing, Refused string
}

// kept is what was read of one Secret.
type kept struct {
	name  string
	since time.Time // when the Cluster was made that needs it
	// version is the one that the metadata showed when it was read; empty: it was not read.
	version string
	// tooMany: there are as many of older Clusters as are kept.
	tooMany    bool
	kubeconfig Kubeconfig
	key        seal.Key // if it is the seal
}

// Kubeconfig returns what was read last of the kubeconfig of a Cluster, and reads it again if it has changed. The
// Cluster needs it until Release is called, and was made at the time since.
func (s *Store) Kubeconfig(fleet, cluster string, since time.Time) Kubeconfig {
	name := cluster + KubeconfigSuffix
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.fleets[fleet]
	is := f.metadata(fleet, name)
	if is == nil {
		f.release(name)
		return Kubeconfig{Missing: cmp.Or(f.missingGrant(), "there is no Secret "+name)}
	}
	k := f.find(name)
	if k == nil {
		k = &kept{name: name, since: since}
		at, _ := slices.BinarySearchFunc(f.kubeconfigs, k, older)
		f.kubeconfigs = slices.Insert(f.kubeconfigs, at, k)
		f.divide()
	}
	f.refresh(k, is)
	switch {
	case k.tooMany:
		return Kubeconfig{Refused: fmt.Sprintf("Secret %s is not read: at most %d kubeconfigs are in a namespace, "+
			"and older Clusters come first; delete Clusters that nobody needs", name, MaxKubeconfigs)}
	case k.version == "":
		return Kubeconfig{Missing: fmt.Sprintf("Secret %s is being read", name)}
	}
	return k.kubeconfig
}

// Release drops a kubeconfig that its Cluster does not need any more.
func (s *Store) Release(fleet, cluster string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fleets[fleet].release(cluster + KubeconfigSuffix)
}

// Seal returns the mark and the key of a fleet's seal as they were seen last, and reads the key again if it may have
// changed.
func (s *Store) Seal(fleet string) (mark string, key seal.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.fleets[fleet]
	is := f.metadata(fleet, seal.SecretName)
	if is == nil {
		return "", nil
	}
	f.refresh(&f.seal, is)
	return seal.MarkOf(is), f.seal.key
}

func (f *fleet) release(name string) {
	if f == nil {
		return
	}
	f.kubeconfigs = slices.DeleteFunc(f.kubeconfigs, func(k *kept) bool { return k.name == name })
	f.divide()
}

// divide keeps the kubeconfigs of the oldest Clusters. So nobody who makes more Secrets or Clusters takes anything
// from those that were there.
func (f *fleet) divide() {
	for n, k := range f.kubeconfigs {
		if is := n >= MaxKubeconfigs; is != k.tooMany {
			*k = kept{name: k.name, since: k.since, tooMany: is}
			f.queue.Add(k.name)
		}
	}
}

// older orders kubeconfigs by the age of their Clusters.
func older(a, b *kept) int { return cmp.Or(a.since.Compare(b.since), strings.Compare(a.name, b.name)) }

// refresh has a Secret read if it is not the one that was read last.
func (f *fleet) refresh(k *kept, is *metav1.PartialObjectMetadata) {
	if k.version != is.ResourceVersion && !k.tooMany {
		f.queue.Add(k.name)
	}
}

// find returns what is kept of a Secret, or nil.
func (f *fleet) find(name string) *kept {
	if name == seal.SecretName {
		return &f.seal
	}
	if i := slices.IndexFunc(f.kubeconfigs, func(k *kept) bool { return k.name == name }); i >= 0 {
		return f.kubeconfigs[i]
	}
	return nil
}

// readAll reads the Secrets that are asked for, one after the other, until the queue is shut down.
func (s *Store) readAll(ctx context.Context, name string, f *fleet) {
	for secret, shutdown := f.queue.Get(); !shutdown; secret, shutdown = f.queue.Get() {
		if err := s.read(ctx, name, f, secret); err == nil {
			f.queue.Forget(secret)
		} else {
			s.Log.V(1).Info("A Secret cannot be read", "fleet", name, "secret", secret, "err", err.Error())
			f.queue.AddRateLimited(secret)
		}
		f.queue.Done(secret)
	}
}

// read reads a Secret, and has whoever needs it look at it.
func (s *Store) read(ctx context.Context, name string, f *fleet, secret string) error {
	s.mu.Lock()
	k, is := f.find(secret), f.metadata(name, secret)
	due := k != nil && is != nil && !k.tooMany && k.version != is.ResourceVersion
	s.mu.Unlock()
	if due {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		full, err := s.Client.CoreV1().Secrets(name).Get(ctx, secret, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil // the metadata show that soon
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		switch {
		case k.tooMany: // since it was asked for
		case k == &f.seal:
			k.version, k.key = is.ResourceVersion, seal.KeyOf(full)
		default:
			k.version, k.kubeconfig = is.ResourceVersion, kubeconfigIn(full)
		}
		s.mu.Unlock()
	}
	s.Seen(ctx, name, secret)
	return nil
}

// kubeconfigIn returns the kubeconfig in a Secret.
func kubeconfigIn(full *corev1.Secret) Kubeconfig {
	switch value := full.Data[KubeconfigKey]; {
	case len(value) == 0:
		return Kubeconfig{Missing: fmt.Sprintf("Secret %s has no key %q", full.Name, KubeconfigKey)}
	case len(value) > MaxKubeconfig:
		return Kubeconfig{Refused: fmt.Sprintf("Secret %s: its key %q has %d bytes: at most %d are read",
			full.Name, KubeconfigKey, len(value), MaxKubeconfig)}
	default:
		return Kubeconfig{Value: string(value)}
	}
}

package secrets

import (
	"cmp"
	"context"
	"fmt"

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
)

// Kubeconfig is what is known of the kubeconfig of a Cluster.
type Kubeconfig struct {
	Value string
	// Missing says why there is none, and Refused why it is not kept. One of the three is set.
	Missing, Refused string
}

// kept is what was read of one Secret.
type kept struct {
	name string
	// version is the one that the metadata showed when it was read; empty: it was not read.
	version    string
	kubeconfig Kubeconfig
	key        seal.Key // if it is the seal
}

// Kubeconfig returns what was read last of the kubeconfig of a Cluster, and reads it again if it has changed. The
// Cluster needs it until Forget is called.
func (s *Store) Kubeconfig(fleet, cluster string) Kubeconfig {
	name := cluster + KubeconfigSuffix
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.fleets[fleet]
	is := f.metadata(fleet, name)
	if is == nil {
		f.forget(name)
		return Kubeconfig{Missing: cmp.Or(f.missingGrant(), "there is no Secret "+name)}
	}
	k := f.kubeconfigs[name]
	if k == nil {
		k = &kept{name: name}
		f.kubeconfigs[name] = k
	}
	f.refresh(k, is)
	if k.version == "" {
		return Kubeconfig{Missing: fmt.Sprintf("Secret %s is being read", name)}
	}
	return k.kubeconfig
}

// Forget drops a kubeconfig that its Cluster does not need any more.
func (s *Store) Forget(fleet, cluster string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fleets[fleet].forget(cluster + KubeconfigSuffix)
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

func (f *fleet) forget(name string) {
	if f != nil {
		delete(f.kubeconfigs, name)
	}
}

// refresh has a Secret read if it is not the one that was read last.
func (f *fleet) refresh(k *kept, is *metav1.PartialObjectMetadata) {
	if k.version != is.ResourceVersion {
		f.queue.Add(k.name)
	}
}

// find returns what is kept of a Secret, or nil if nothing needs it.
func (f *fleet) find(name string) *kept {
	if name == seal.SecretName {
		return &f.seal
	}
	return f.kubeconfigs[name]
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
	due := k != nil && is != nil && k.version != is.ResourceVersion
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
		k.version = is.ResourceVersion
		if k == &f.seal {
			k.key = seal.KeyOf(full)
		} else {
			k.kubeconfig = kubeconfigIn(full)
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
	case len(value) > transport.MaxKubeconfig: // it would not be parsed
		return Kubeconfig{Refused: fmt.Sprintf("Secret %s: its key %q has %d bytes: at most %d are read",
			full.Name, KubeconfigKey, len(value), transport.MaxKubeconfig)}
	default:
		return Kubeconfig{Value: string(value)}
	}
}

package member

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"
	utilclock "k8s.io/utils/clock"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
)

// Registration registers a Member. The process keeps its own Lease, which records that it follows the Leases. When the
// hub revokes a term, the process records there when it has stopped acting. With handover: RegisteredReaders the hub
// then need not wait until the term has run out. So a planned change takes a moment instead of seconds.
//
// It relies on the program to report when its work has finished:
//
//   - It calls every CancelFunc of Member.Context then and not before. Lead and a gated reconciler do so by themselves.
//   - A listener returns from Demoted when it has stopped what it began in Promoted.
//   - Writes to Kubernetes go through CapWrites. New rejects a Client that does not use it.
//
// A program that only asks Member.Term, and acts, must not register. Nor must a Member of a process in which another
// Member acts in the same namespaces without a Registration: the hub does not wait for that one.
//
// The Member confirms its registration by a write every few seconds. Without a confirmation it does not lead: it fails
// closed. Its service account needs get, create, update and delete on leases (coordination.k8s.io) in the namespace.
type Registration struct {
	// Client is what the acting clients send their requests with, so that New can verify that CapWrites is there.
	// CapWrites is missing if the configuration was wrapped after the clients were made. Under controller-runtime, Client
	// is mgr.GetHTTPClient(). With client-go it is the client that rest.HTTPClientFor returned and
	// kubernetes.NewForConfigAndClient was given. The Member itself sends nothing through it.
	//
	// It must be the client that writes, which New cannot verify. The Member waits for writes through CapWrites, whichever
	// client sends them, and for no others.
	Client *http.Client
	// Namespace holds the registration: the namespace of the program's own Pod. Default: the namespace in the files of the
	// Pod's service account.
	Namespace string
}

const (
	// registrationDuration is how long after a confirmation this Member stops acting without another.
	registrationDuration = 15 * time.Second
	// confirmEvery is the time between two confirmations.
	confirmEvery = registrationDuration / 3
	// registrationTimeout bounds each request for the registration.
	registrationTimeout = registrationDuration / 5
	// leaveTimeout bounds the work after the end of Start's context: waiting for work to finish, and removing the
	// registration.
	leaveTimeout = 5 * time.Second
)

// namespaceFile holds the namespace of a Pod.
var namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// confirmBackoff is the wait after a failed confirmation. It stays short, because all terms end with the registration.
var confirmBackoff = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 3, Cap: time.Second}

// errUncapped rejects a registration that would promise too much.
var errUncapped = fmt.Errorf("%w: a registration needs CapWrites, which knows what writes are still on their way "+
	"when a term is to be released, and it is not in the transport of Registration.Client: "+
	"call cfg.Wrap(member.CapWrites) before the manager or any client is made, "+
	"and set Client to mgr.GetHTTPClient(), or to the one that your clients were made with: "+
	"it must be the client that writes; "+
	"a wrapper that is put on after that needs the method WrappedRoundTripper, so that it can be seen through", ErrMisused)

func (r *Registration) complete() error {
	if r.Client == nil || !capsWrites(r.Client) {
		return errUncapped
	}
	if r.Namespace != "" {
		return validNamespace("Registration.Namespace is", r.Namespace)
	}
	content, err := os.ReadFile(namespaceFile)
	if err != nil {
		return fmt.Errorf("%w: Registration.Namespace is empty, and this is no Pod that knows its own: "+
			"name the namespace in which this program may write leases: %w", ErrMisused, err)
	}
	r.Namespace = strings.TrimSpace(string(content))
	return validNamespace("Registration.Namespace in "+namespaceFile+" is", r.Namespace)
}

// errLost reports that the registration is over: it was deleted, or confirmed too late.
var errLost = errors.New("the registration is lost")

// registrar keeps the registration of a Member. The API server's version of the Lease orders its writes. Each of them
// is whole, so one that had no answer is written again, above whatever is stored.
type registrar struct {
	member    *Member
	namespace string
	leases    coordinationv1client.LeaseInterface
	reviews   authenticationv1client.SelfSubjectReviewInterface
	account   string                 // empty: not known yet
	content   lease.Registration     // as last confirmed
	stored    *coordinationv1.Lease  // as the API server returned it; without a UID: it was not created yet
	confirmed atomic.Int64           // when content was, as in Reading.Boot; at first, when New was called
	problem   atomic.Pointer[string] // why the last request failed; nil: none has since the last confirmation
}

func newRegistrar(
	m *Member,
	leases coordinationv1client.LeasesGetter,
	reviews authenticationv1client.SelfSubjectReviewsGetter,
	o Options,
) *registrar {
	m.terms.releases.require()
	r := &registrar{
		member:    m,
		namespace: o.Registration.Namespace,
		leases:    leases.Leases(o.Registration.Namespace),
		reviews:   reviews.SelfSubjectReviews(),
	}
	r.confirmed.Store(int64(m.clock.Now().Boot))
	return r
}

// run calls follow while there is a registration, until ctx ends. It registers first, then follow lists the Leases. So
// either the hub lists the registration after it has revoked a term, or the Leases are listed after the revocation.
// When the registration is lost, run starts over, under an identity that was never used before.
func (r *registrar) run(ctx context.Context, follow func(ctx context.Context)) {
	for ctx.Err() == nil {
		identity := strings.ToLower(rand.Text())
		r.content = lease.Registration{Identity: identity, Namespaces: r.member.terms.only, Duration: registrationDuration}
		r.stored = &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "leasecast-reader-" + identity},
		}
		if r.confirmUntilDone(ctx, nil) != nil || ctx.Err() != nil {
			continue // it was deleted at once, or there is none
		}
		r.member.log.Info("Registered", "registration", klog.KObj(r.stored), "account", r.account)
		following, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			follow(following)
		}()
		lost := r.keep(ctx)
		if lost != nil {
			r.member.terms.releases.lost(lost.Error())
			r.member.log.Info("Registers again, and does not lead until then",
				"registration", klog.KObj(r.stored), "reason", lost.Error())
		}
		cancel()
		<-done
	}
}

// keep confirms the registration, and releases in it what is releasable, until ctx ends or the registration is lost. It
// returns the reason for the loss, or nil.
func (r *registrar) keep(ctx context.Context) (lost error) {
	for ctx.Err() == nil {
		released := r.member.terms.releases.releasable()
		due := confirmEvery - (r.member.clock.Now().Boot - time.Duration(r.confirmed.Load()))
		if due > 0 && !addsTo(r.content.Released, released) {
			pause(ctx, due, r.member.terms.releases.changed)
			continue
		}
		if err := r.confirmUntilDone(ctx, released); err != nil {
			return err
		}
	}
	return nil
}

// addsTo reports whether released has an epoch that before does not.
func addsTo(before, released map[string]int64) bool {
	for namespace, epoch := range released {
		if before[namespace] < epoch {
			return true
		}
	}
	return false
}

// pause returns after d, when wake has a value, or when ctx ends.
func pause(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	timer := utilclock.RealClock{}.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-wake:
	case <-ctx.Done():
	}
}

// confirmUntilDone confirms the registration, and retries until it succeeds or ctx ends. It returns an error if the
// registration is lost.
func (r *registrar) confirmUntilDone(ctx context.Context, released map[string]int64) (lost error) {
	for delay := confirmBackoff.DelayFunc(); ctx.Err() == nil; pause(ctx, delay(), nil) {
		err := r.confirm(ctx, released)
		switch {
		case err == nil:
			r.problem.Store(nil)
			r.member.reporter.works("registration", "Confirms the registration again", "registration", klog.KObj(r.stored))
			return nil
		case errors.Is(err, errLost):
			return err
		case ctx.Err() == nil:
			r.problem.Store(r.member.reporter.failed("registration", "Cannot register, or confirm the registration", err,
				"namespace", r.namespace))
		}
	}
	return nil
}

// confirm writes the registration: this process lives, and has released these epochs.
func (r *registrar) confirm(ctx context.Context, released map[string]int64) error {
	ctx, cancel := context.WithTimeout(ctx, registrationTimeout)
	defer cancel()
	if r.account == "" {
		review, err := r.reviews.Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("ask for the own username: %w", err)
		}
		r.account = review.Status.UserInfo.Username
	}
	sent := r.member.clock.Now() // before the request
	if r.member.terms.releases.lapsed(sent) {
		return fmt.Errorf("%w: it was not confirmed in time", errLost)
	}
	content := r.content
	content.Account, content.Released, content.Confirmed = r.account, released, sent.Wall
	stored, err := r.write(ctx, content, false)
	if err != nil {
		return err
	}
	r.content, r.stored = content, stored
	if !r.member.terms.releases.confirmed(content.Permit(sent)) {
		return fmt.Errorf("%w: it was not confirmed in time", errLost)
	}
	r.confirmed.Store(int64(sent.Boot))
	return nil
}

// write creates the registration, or updates what is stored. After a conflict, with an earlier write of its own or with
// an edit, the next write goes above what is stored. The last write frees the registration, which can then be deleted.
// write returns errLost if the registration was deleted before.
func (r *registrar) write(
	ctx context.Context, content lease.Registration, last bool,
) (stored *coordinationv1.Lease, err error) {
	l := r.stored.DeepCopy()
	if err := wire.WriteRegistration(content, l); err != nil {
		return nil, err
	}
	if last {
		wire.FreeRegistration(l)
	}
	if l.UID == "" {
		stored, err = r.leases.Create(ctx, l, metav1.CreateOptions{})
	} else {
		stored, err = r.leases.Update(ctx, l, metav1.UpdateOptions{})
	}
	switch {
	case err == nil:
		return stored, nil
	case apierrors.IsNotFound(err) && l.UID != "":
		return nil, fmt.Errorf("%w: an edit has removed it: %w", errLost, err)
	case !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err):
		return nil, fmt.Errorf("write registration %s: %w", klog.KObj(l), err)
	}
	current, failure := r.leases.Get(ctx, l.Name, metav1.GetOptions{})
	switch {
	case failure != nil && !apierrors.IsNotFound(failure):
		return nil, errors.Join(err, failure)
	case failure != nil, l.UID != "" && current.UID != l.UID, current.DeletionTimestamp != nil:
		return nil, fmt.Errorf("%w: an edit has deleted it", errLost)
	}
	r.stored = current
	return nil, err
}

// leave removes the registration when all terms have ended for good, once all work has finished. If that takes too long
// or fails, the hub removes it.
func (r *registrar) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	if r.stored == nil || r.stored.UID == "" {
		return
	}
	if err := r.remove(ctx); err != nil {
		r.member.log.Error(err, "Leaves its registration to the hub", "registration", klog.KObj(r.stored))
	}
}

func (r *registrar) remove(ctx context.Context) error {
	released, finished := r.member.terms.releases.final()
	for ; !finished; released, finished = r.member.terms.releases.final() {
		if ctx.Err() != nil {
			return errors.New("work goes on after its term")
		}
		// Writes that may still take effect end without a notification.
		pause(ctx, recheck, r.member.terms.releases.changed)
	}
	content := r.content
	content.Released, content.Confirmed = released, r.member.clock.Now().Wall
	stored, err := r.write(ctx, content, true)
	if apierrors.IsConflict(err) { // with an earlier write that had no answer
		stored, err = r.write(ctx, content, true)
	}
	if err != nil {
		return err
	}
	return r.leases.Delete(ctx, stored.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &stored.UID}})
}

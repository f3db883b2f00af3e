package member

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
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
// hub revokes a term, the process records there when it has stopped acting. In a policy with handover: RegisteredReaders the
// hub then need not wait until the term has run out. So a planned change takes a moment instead of seconds.
//
// It relies on the program to report when its work has finished:
//
//   - It calls every CancelFunc of Member.Context then and not before. Lead and a gated reconciler do so by themselves.
//   - A listener returns from Demoted when it has stopped what it began in Promoted.
//   - Writes to Kubernetes go through CapWrites. New rejects a Client that does not use it.
//
// A program that only asks Member.Term, and acts, must not register.
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
	// client sends them, and for no others. If a term with work ends and CapWrites has never seen a write, the Member logs
	// this once.
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
	// maxDeleted is how many deleted registrations a Member remembers. The hub removes all of them.
	maxDeleted = 10
	// leaveTimeout bounds the work after the end of Start's context: waiting for work to finish, and removing the
	// registration.
	leaveTimeout = 5 * time.Second
)

// namespaceFile holds the namespace of a Pod.
var namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// confirmBackoff is the wait after a failed confirmation. It stays short, because all terms end with the registration.
var confirmBackoff = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 3, Cap: time.Second}

// errUncapped rejects a registration that would promise too much.
var errUncapped = fmt.Errorf("%w: a registration needs CapWrites, which knows what writes are still on their way when a term is to be "+
	"released, and it is not in the transport of Registration.Client: call cfg.Wrap(member.CapWrites) before the manager or any client is "+
	"made, and set Client to mgr.GetHTTPClient(), or to the one that your clients were made with: it must be the client that writes; "+
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
		return fmt.Errorf("%w: Registration.Namespace is empty, and this is no Pod that knows its own: name the namespace in which this program may write leases: %w", ErrMisused, err)
	}
	r.Namespace = strings.TrimSpace(string(content))
	return validNamespace("Registration.Namespace in "+namespaceFile+" is", r.Namespace)
}

var (
	// errLost reports that a registration is not what this Member last wrote.
	errLost = errors.New("the registration is lost")
	// errLapsed reports that a registration was confirmed too late.
	errLapsed = errors.New("the registration was not confirmed in time")
)

// registrar keeps the registration of a Member.
type registrar struct {
	member    *Member
	namespace string
	leases    coordinationv1client.LeaseInterface
	reviews   authenticationv1client.SelfSubjectReviewInterface
	changed   <-chan struct{} // there may be something to release
	follows   []string
	account   string                  // empty: not known yet
	says      lease.Registration      // as last confirmed
	stored    *coordinationv1.Lease   // as the API server returned it; nil: there is no registration
	unsettled []*coordinationv1.Lease // what updates without an answer may have stored instead
	trouble   trouble                 // the last one that was logged
	deleted   []*coordinationv1.Lease // registrations that may have been deleted, and that their finalizer keeps
	confirmed atomic.Int64            // when says was, as in Reading.Boot; at first, when New was called
	made      atomic.Bool             // it was confirmed once
	failure   atomic.Pointer[string]  // why the last request failed; nil: none has since the last confirmation
}

func newRegistrar(
	m *Member, leases coordinationv1client.LeasesGetter, reviews authenticationv1client.SelfSubjectReviewsGetter, o Options,
) *registrar {
	r := &registrar{
		member:    m,
		namespace: o.Registration.Namespace,
		leases:    leases.Leases(o.Registration.Namespace),
		reviews:   reviews.SelfSubjectReviews(),
		changed:   m.terms.register(),
		follows:   o.Namespaces,
	}
	r.confirmed.Store(int64(m.clock.Now().Boot))
	return r
}

// run calls follow while there is a registration, until ctx ends. It registers first, then follow lists the Leases. So
// either the hub lists the registration after it has revoked a term, or the Leases are listed after the revocation.
// When the registration is lost, run starts over.
func (r *registrar) run(ctx context.Context, follow func(ctx context.Context)) {
	for r.register(ctx) {
		following, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			follow(following)
		}()
		lost := r.keep(ctx)
		if lost != nil {
			r.member.terms.distrust(lost.Error())
			r.member.log.Info("Registers anew, and does not lead until then", "registration", klog.KObj(r.stored), "reason", lost.Error())
			if errors.Is(lost, errLost) {
				r.remember(r.stored)
			}
			r.stored = nil
		}
		cancel()
		if <-done; lost == nil {
			return
		}
	}
}

// register makes a registration under an identity that was never used before. It reports whether it succeeded before
// ctx ended.
func (r *registrar) register(ctx context.Context) bool {
	delay := backoff.DelayFunc()
	l := r.fresh()
	for ctx.Err() == nil {
		err := r.create(ctx, l)
		switch {
		case err == nil:
			r.trouble = trouble{}
			r.member.log.Info("Registered", "registration", klog.KObj(r.stored), "account", r.account)
			return true
		case errors.Is(err, errLost):
			l = r.fresh()
		}
		if ctx.Err() == nil {
			r.failed("Cannot register", err)
		}
		pause(ctx, delay())
	}
	return false
}

// fresh returns a registration with a new identity, which has released nothing yet.
func (r *registrar) fresh() *coordinationv1.Lease {
	identity := strings.ToLower(rand.Text())
	r.says = lease.Registration{Identity: identity, Namespaces: r.follows, Duration: registrationDuration}
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "leasecast-reader-" + identity}}
}

// create tries once to make the registration. One that already exists under this name is this Member's own, from a
// request without an answer.
func (r *registrar) create(ctx context.Context, l *coordinationv1.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, registrationTimeout)
	defer cancel()
	if r.account == "" {
		review, err := r.reviews.Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("ask for the own username: %w", err)
		}
		r.account = review.Status.UserInfo.Username
	}
	r.says.Account = r.account
	says, sent, err := r.write(r.says, l)
	if err != nil {
		return err
	}
	stored, err := r.leases.Create(ctx, l, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		if stored, err = r.leases.Get(ctx, l.Name, metav1.GetOptions{}); err != nil {
			return fmt.Errorf("look at registration %s: %w", says.Identity, err)
		}
		own := l.DeepCopy() // a later try may have to create l again
		own.UID, own.ResourceVersion = stored.UID, stored.ResourceVersion
		stored, err = r.leases.Update(ctx, own, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("make registration %s/leasecast-reader-%s: %w", r.namespace, says.Identity, err)
	}
	return r.take(stored, says, sent)
}

// write puts the registration into l, confirmed now, which is before the request.
func (r *registrar) write(says lease.Registration, l *coordinationv1.Lease) (lease.Registration, lease.Reading, error) {
	now := r.member.clock.Now()
	says.Confirmed = now.Wall
	return says, now, wire.WriteRegistration(says, l)
}

// take records that the API server has stored the registration. It returns errLost if the registration is being
// deleted. A late confirmation changes nothing, and keep detects that.
func (r *registrar) take(stored *coordinationv1.Lease, says lease.Registration, sent lease.Reading) error {
	if stored.DeletionTimestamp != nil {
		r.remember(stored)
		return fmt.Errorf("%w: somebody has deleted it", errLost)
	}
	r.member.terms.confirmed(says.Permit(sent))
	r.says, r.stored, r.unsettled = says, stored, nil
	r.confirmed.Store(int64(sent.Boot))
	r.made.Store(true)
	r.failure.Store(nil)
	return nil
}

// remember records a registration that was changed or deleted, for leave.
func (r *registrar) remember(l *coordinationv1.Lease) {
	r.deleted = append(r.deleted[max(0, len(r.deleted)+1-maxDeleted):], l)
}

// keep confirms the registration, and releases in it what is releasable, until ctx ends or the registration is lost. It
// returns the reason for the loss, or nil.
func (r *registrar) keep(ctx context.Context) (lost error) {
	delay := confirmBackoff.DelayFunc()
	for ctx.Err() == nil {
		if !r.member.terms.registered() {
			return errLapsed
		}
		released := r.member.terms.releasable()
		due := confirmEvery - (r.member.clock.Now().Boot - time.Duration(r.confirmed.Load()))
		if due > 0 && !news(released, r.says.Released) {
			r.await(ctx, due)
			continue
		}
		switch err := r.confirm(ctx, released); {
		case err == nil:
			if r.trouble.told {
				r.member.log.Info("Confirms the registration again", "registration", klog.KObj(r.stored))
			}
			delay, r.trouble = confirmBackoff.DelayFunc(), trouble{}
		case ctx.Err() != nil:
		case errors.Is(err, errLost):
			return err
		default:
			r.failed("Cannot confirm the registration", err)
			pause(ctx, delay())
		}
	}
	return nil
}

// news reports whether released has an epoch that before does not.
func news(released, before map[string]int64) bool {
	for namespace, epoch := range released {
		if before[namespace] < epoch {
			return true
		}
	}
	return false
}

// await returns after d, when there may be something to release, or when ctx ends.
func (r *registrar) await(ctx context.Context, d time.Duration) {
	timer := utilclock.RealClock{}.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-r.changed:
	case <-ctx.Done():
	}
}

// pause returns after d, or when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := utilclock.RealClock{}.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-ctx.Done():
	}
}

// confirm writes the registration again: this process lives, and has released these epochs.
func (r *registrar) confirm(ctx context.Context, released map[string]int64) error {
	ctx, cancel := context.WithTimeout(ctx, registrationTimeout)
	defer cancel()
	if err := r.settle(ctx); err != nil {
		return err
	}
	says, l := r.says, r.stored.DeepCopy()
	says.Released = released
	says, sent, err := r.write(says, l)
	if err != nil {
		return err
	}
	stored, err := r.update(ctx, l)
	if err != nil {
		return err
	}
	return r.take(stored, says, sent)
}

// update stores the registration, if it is still as this Member last saw it.
func (r *registrar) update(ctx context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	stored, err := r.leases.Update(ctx, l, metav1.UpdateOptions{})
	switch {
	case err == nil:
		return stored, nil
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("%w: somebody has removed it: %w", errLost, err)
	case apierrors.IsConflict(err) && len(r.unsettled) == 0:
		return nil, fmt.Errorf("%w: somebody has %s it: %w", errLost, r.touched(ctx), err)
	}
	r.unsettled = append(r.unsettled, l)
	return nil, fmt.Errorf("confirm registration %s: %w", l.Name, err)
}

// touched returns what an edit has done to the registration: changed it or deleted it. The finalizer keeps a deleted
// one.
func (r *registrar) touched(ctx context.Context) string {
	stored, err := r.leases.Get(ctx, r.stored.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return "changed or deleted"
	case stored.DeletionTimestamp != nil:
		return "deleted"
	}
	return "changed"
}

// settle finds the outcome of updates without an answer. Anything else that is stored is another writer's, and the
// registration is lost.
func (r *registrar) settle(ctx context.Context) error {
	if len(r.unsettled) == 0 {
		return nil
	}
	stored, err := r.leases.Get(ctx, r.stored.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: somebody has removed it: %w", errLost, err)
	case err != nil:
		return fmt.Errorf("look at registration %s: %w", r.stored.Name, err)
	case stored.UID == r.stored.UID && stored.ResourceVersion == r.stored.ResourceVersion:
		return nil // one may still be in flight: then the next write meets a conflict
	case stored.UID != r.stored.UID || !slices.ContainsFunc(r.unsettled, func(l *coordinationv1.Lease) bool { return same(l, stored) }):
		return fmt.Errorf("%w: somebody has changed it", errLost)
	}
	r.stored, r.unsettled = stored, nil
	return nil
}

func same(a, b *coordinationv1.Lease) bool {
	return equality.Semantic.DeepEqual(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.Annotations, b.Annotations) &&
		equality.Semantic.DeepEqual(a.Finalizers, b.Finalizers) && equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences) &&
		equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

// leave removes the registration after all terms have ended for good, once all work has finished. It also removes the
// deleted registrations. If that takes too long or fails, the hub removes them.
func (r *registrar) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	if r.stored != nil {
		if err := r.takeBack(ctx); err != nil {
			r.member.log.Error(err, "Leaves its registration to the hub", "registration", klog.KObj(r.stored))
		}
	}
	for _, l := range r.deleted {
		if err := r.free(ctx, l); err != nil {
			r.member.log.Error(err, "Leaves a registration that was deleted to the hub", "registration", klog.KObj(l))
		}
	}
}

// finish waits until all work has finished, and returns the epochs that this releases.
func (r *registrar) finish(ctx context.Context) (map[string]int64, error) {
	for {
		released, finished := r.member.terms.left()
		switch {
		case finished:
			return released, nil
		case ctx.Err() != nil:
			return nil, errors.New("work goes on after its term")
		}
		r.await(ctx, recheck) // writes that may still take effect end without a notification
	}
}

// free removes the finalizer from a deleted registration, which only the finalizer keeps.
func (r *registrar) free(ctx context.Context, l *coordinationv1.Lease) error {
	if _, err := r.finish(ctx); err != nil {
		return err
	}
	stored, err := r.leases.Get(ctx, l.Name, metav1.GetOptions{})
	if err == nil && stored.UID == l.UID && stored.DeletionTimestamp != nil {
		wire.FreeRegistration(stored)
		_, err = r.leases.Update(ctx, stored, metav1.UpdateOptions{})
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (r *registrar) takeBack(ctx context.Context) error {
	released, err := r.finish(ctx)
	if err != nil {
		return err
	}
	if err := r.settle(ctx); err != nil {
		return err
	}
	says, l := r.says, r.stored.DeepCopy()
	says.Released = released
	if _, _, err := r.write(says, l); err != nil {
		return err
	}
	wire.FreeRegistration(l)
	stored, err := r.update(ctx, l)
	if err != nil {
		return err
	}
	return r.leases.Delete(ctx, stored.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &stored.UID}})
}

// stale returns an error if the last confirmation of the registration is older than after.
func (r *registrar) stale(now, after time.Duration) error {
	age := now - time.Duration(r.confirmed.Load())
	if age <= after {
		return nil
	}
	cure := checkTheWay
	if failure := r.failure.Load(); failure != nil {
		cure = *failure
	}
	if !r.made.Load() {
		return fmt.Errorf("member: the registration in namespace %s was never made, for %v by now; %s", r.namespace, age.Round(time.Millisecond), cure)
	}
	return fmt.Errorf("member: the registration in namespace %s is stale: last confirmed %v ago, want at most %v; %s",
		r.namespace, age.Round(time.Millisecond), after, cure)
}

// unconfirmed returns why the registration is not valid.
func (r *registrar) unconfirmed() string {
	if r.made.Load() {
		return "its registration in namespace " + r.namespace + " was not confirmed in time"
	}
	return "its registration in namespace " + r.namespace + " has not been made yet"
}

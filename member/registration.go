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

// Registration has a Member register: the process says in a Lease of its own that it follows the Leases,
// and when it has stopped acting in a term that the hub takes back. In a policy with
// handover: Acknowledged the hub then need not wait until the term has run out, so
// a planned change takes a moment instead of seconds.
//
// It rests on the program saying when its work has finished: every CancelFunc of
// Member.Context is called then and not before (Lead and a gated reconciler do so by themselves), a
// listener returns from Demoted when it has stopped what it began in Promoted, and writes to
// Kubernetes go through CapWrites: New refuses a Client that does not. Whoever
// only asks Member.Term, and acts, must not register.
//
// While its registration is not confirmed, by a write every few seconds, a Member does not lead: it
// fails closed. Its service account needs get, create, update and delete on
// leases (coordination.k8s.io) in the namespace.
type Registration struct {
	// Client is what the clients that act send their requests with, so that New can see that CapWrites is there: it is not
	// if the configuration was wrapped after they were made. Under controller-runtime it is mgr.GetHTTPClient(). With
	// client-go it is what rest.HTTPClientFor returned and kubernetes.NewForConfigAndClient was given. The Member itself
	// sends nothing by it. It must be the client that writes, and New cannot see whether it is. Writes through CapWrites are waited for,
	// whichever client sends them, and no others. When a term ends in which there was work, and no write was ever seen, the
	// Member tells it once.
	Client *http.Client
	// Namespace is where the registration is kept: that of the program's own Pod. Default:
	// the one in the files of the Pod's service account.
	Namespace string
}

const (
	// registrationDuration is how long after a confirmation this Member stops acting without another.
	registrationDuration = 15 * time.Second
	// confirmEvery is the time between two confirmations.
	confirmEvery = registrationDuration / 3
	// registrationTimeout bounds each request for the registration.
	registrationTimeout = registrationDuration / 5
	// maxDeleted is how many registrations a Member remembers that somebody has deleted. The hub removes all of them.
	maxDeleted = 10
	// leaveTimeout bounds what happens after the end of Start's context: waiting for
	// work to finish, and taking the registration back.
	leaveTimeout = 5 * time.Second
)

// namespaceFile is where a Pod finds its namespace.
var namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// confirmBackoff is how long to wait after a confirmation failed: not long, for all terms end with it.
var confirmBackoff = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 3, Cap: time.Second}

// errUncapped refuses a registration that would promise too much.
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
	// errLost says that a registration is not what this Member last wrote.
	errLost = errors.New("the registration is lost")
	// errLapsed says that a registration was confirmed too late.
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
	stored    *coordinationv1.Lease   // the API server's answer to that; nil: there is no registration
	unsettled []*coordinationv1.Lease // what updates without an answer may have stored instead
	trouble   trouble                 // that was told last
	deleted   []*coordinationv1.Lease // registrations that somebody may have deleted, and that their finalizer keeps
	confirmed atomic.Int64            // when says was, as in Reading.Boot; at first, when New was called
	made      atomic.Bool             // it was confirmed once
	failure   atomic.Pointer[string]  // why the last request failed; nil: none has since it was confirmed
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

// run has follow called while there is a registration, until ctx ends: first the registration, then the
// Leases. So either the hub lists the registration after it has revoked a term, or
// the Leases are listed after that. With a lost registration everything starts over.
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

// register makes a registration, under an identity that was never used before, and reports
// whether it did before ctx ended.
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

// fresh begins with a new identity, that nobody can know of anything it has not done.
func (r *registrar) fresh() *coordinationv1.Lease {
	identity := strings.ToLower(rand.Text())
	r.says = lease.Registration{Identity: identity, Namespaces: r.follows, Duration: registrationDuration}
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "leasecast-reader-" + identity}}
}

// create tries once to make the registration. One that exists already under this name
// is its own, from a try that got no answer.
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
		own := l.DeepCopy() // l may have to be created once more
		own.UID, own.ResourceVersion = stored.UID, stored.ResourceVersion
		stored, err = r.leases.Update(ctx, own, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("make registration %s/leasecast-reader-%s: %w", r.namespace, says.Identity, err)
	}
	return r.take(stored, says, sent)
}

// write puts into l what a registration says when it is confirmed now, which is before the
// request.
func (r *registrar) write(says lease.Registration, l *coordinationv1.Lease) (lease.Registration, lease.Reading, error) {
	now := r.member.clock.Now()
	says.Confirmed = now.Wall
	return says, now, wire.WriteRegistration(says, l)
}

// take notes that the API server has stored what this Member says. It fails if somebody has deleted the
// registration. If it comes too late it changes nothing, and keep finds that out.
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

// remember notes a registration that somebody has touched, for leave.
func (r *registrar) remember(l *coordinationv1.Lease) {
	r.deleted = append(r.deleted[max(0, len(r.deleted)+1-maxDeleted):], l)
}

// keep confirms the registration, and releases in it what there is to release, until ctx
// ends or the registration is lost, and returns why it is, nil if it is not.
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

// news reports whether there is something to release that was not yet.
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

// confirm writes the registration anew: this process lives, and has released these epochs.
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

// update stores the registration, if it is still what this Member knows.
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

// touched says what somebody has done to the registration, whose finalizer keeps it when it is deleted.
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

// settle finds out what became of updates without an answer. Whatever else is stored is not
// this Member's.
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
		return nil // one may still be on its way: then what is written next meets a conflict
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

// leave takes the registration back after all terms have ended for good, once all work has
// finished, and with it those that somebody has deleted. If that takes too long, or fails, they are left to the hub.
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

// finish returns when all work has finished, with what that releases.
func (r *registrar) finish(ctx context.Context) (map[string]int64, error) {
	for {
		released, finished := r.member.terms.left()
		switch {
		case finished:
			return released, nil
		case ctx.Err() != nil:
			return nil, errors.New("work goes on after its term")
		}
		r.await(ctx, recheck) // writes that may still take effect end without a word
	}
}

// free lets go of a registration that somebody has deleted: its finalizer alone keeps it.
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

// stale returns an error if the registration was last confirmed more than after ago.
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

// unconfirmed says why the registration does not stand.
func (r *registrar) unconfirmed() string {
	if r.made.Load() {
		return "its registration in namespace " + r.namespace + " was not confirmed in time"
	}
	return "its registration in namespace " + r.namespace + " has not been made yet"
}

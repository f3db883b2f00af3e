package fleet

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/rights"
)

const (
	// installTimeout bounds the installation and the removal of the hub's rights.
	installTimeout = 10 * time.Second
	// installPause is the least time between two installations. API servers answer by the old roles for some time.
	installPause = time.Second
	// countPause is the pause between two checks whether new rights count. After countTimeout they are installed again:
	// they may have been lost again.
	countPause, countTimeout = 50 * time.Millisecond, 2 * time.Second
)

// errNoRights is returned where the elected replica has not yet installed the rights of the hub.
var errNoRights = errors.New("the member does not know the role of the hub yet")

// installer installs the rights of the hub in a member. Only the run of its connection uses its fields beside the
// member's state.
type installer struct {
	*member
	// installed is when this replica, since it was elected, has installed the rights of the hub.
	installed *lease.Reading
}

// admit returns nil if the member may be used by a target. It installs the rights of the hub where the member refuses
// the user that the target impersonates.
func (i *installer) admit(ctx context.Context, t *transport.Target, installs bool) error {
	err := i.checkRights(ctx, t)
	switch {
	case err == nil, t.User == "", asProblem(err).Reason != reason.Forbidden:
		return err
	case !installs:
		return errNoRights
	}
	return i.install(ctx, t)
}

// checkRights returns nil if the member lets the user of a target list what caches hold. Informers would try again and
// again.
func (i *installer) checkRights(ctx context.Context, t *transport.Target) error {
	ctx, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	client := kubernetes.NewForConfigOrDie(i.requests.Config(i.requests.To(t))) // the config is valid
	_, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{Limit: 1})
	if err == nil {
		_, err = client.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx,
			metav1.ListOptions{Limit: 1, LabelSelector: managed.String()})
	}
	return t.Describe(err)
}

// install installs the rights of the hub's user, as the administrator of the kubeconfig. It returns when they count.
func (i *installer) install(ctx context.Context, t *transport.Target) error {
	ctx, cancel := context.WithTimeout(ctx, installTimeout)
	defer cancel()
	err := i.rights.Install(ctx, i.administrator(t))
	if err == nil {
		err = i.awaitRights(ctx, t)
	}
	if err != nil {
		return describeRefusal(t, err)
	}
	now := i.clock.Now()
	i.installed = &now
	i.change(func(s *state) {
		if s.refused = false; s.cluster != nil {
			s.contact = Problem{} // of an installation that failed
		}
	})
	i.logger().Info("The hub's role is installed in the member", "user", t.User)
	return nil
}

// describeRefusal describes why the rights of the hub were not installed. Admission answers Invalid where it refuses.
func describeRefusal(t *transport.Target, err error) error {
	p := asProblem(t.Describe(err))
	if apierrors.IsInvalid(err) {
		p = Problem{reason.Forbidden, t.Clean(err.Error())}
	}
	if p.Reason == reason.Forbidden {
		p.Message += "; allow that, or give the Cluster a kubeconfig of the account in config/member"
	}
	return &transport.ContactError{Reason: p.Reason, Message: p.Message}
}

// awaitRights returns when the user that a target impersonates may read. API servers know new roles a moment later.
func (i *installer) awaitRights(ctx context.Context, t *transport.Target) error {
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	var last error
	err := wait.PollUntilContextCancel(ctx, countPause, true, func(ctx context.Context) (bool, error) {
		last = i.checkRights(ctx, t)
		return last == nil || asProblem(last).Reason != reason.Forbidden, nil
	})
	if last != nil {
		return last
	}
	return err
}

// administrator returns a client that acts as the user of the kubeconfig. It is for the rights of the hub only.
func (m *member) administrator(t *transport.Target) kubernetes.Interface {
	return kubernetes.NewForConfigOrDie(m.requests.Config(m.requests.Administrator(t))) // the config is valid
}

// hubUser returns the user to impersonate by a target: the hub's own if the kubeconfig is an administrator's, and none
// if the kubeconfig was prepared for the hub.
func (i *installer) hubUser(ctx context.Context, t *transport.Target) (string, error) {
	switch is, err := rights.IsAdministrator(ctx, i.administrator(t)); {
	case err != nil:
		return "", t.Describe(err)
	case is:
		return i.rights.User(), nil
	}
	return "", nil
}

// untilInstall is how long the hub's rights must not be installed again.
func (i *installer) untilInstall() time.Duration {
	if i.installed == nil {
		return 0
	}
	return i.installed.Boot + installPause - i.clock.Now().Boot
}

// removeRights removes the rights of the hub from a member that takes no part any more. What remains does no harm:
// only an administrator can use it.
func (i *installer) removeRights(ctx context.Context, t *transport.Target) {
	if t.User == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, installTimeout)
	defer cancel()
	i.installed = nil
	if err := i.rights.Remove(ctx, i.administrator(t)); err != nil {
		i.logger().Info("The hub's role is left in the member", "error", transport.Shorten(err.Error()))
	}
}

package fleet

import (
	"context"
	"errors"
	"fmt"

	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/fleet/wake"
	"github.com/leasecast/leasecast/hub/health"
)

// useKubeconfig begins to use the kubeconfig of the Secret, once the cluster behind it has proved to be the
// right one. It returns false to be called again soon. What is in use stays in use until something better is
// proved.
func (c *connection) useKubeconfig(ctx context.Context, s state) bool {
	switch problem := c.parse(s); {
	case problem.Reason != "":
		c.reject(s, problem)
		return true
	case s.target == nil || !s.target.Access.Equal(c.parsed):
		return c.replaceTarget(ctx, s)
	case identityOf(s.spec.pin, s.uid, s.target.UID) == other:
		c.drop(s.target, Problem{reason.WrongCluster, wrongCluster(s.known(), s.target.UID)})
		return false
	}
	c.change(func(s *state) {
		s.kubeconfig = Problem{}
		if s.contact.Reason == reason.WrongCluster {
			s.contact = Problem{}
		}
	})
	return true
}

// parse parses the kubeconfig, once for each version. It returns why it cannot be used, or an empty Problem.
func (c *connection) parse(s state) Problem {
	switch {
	case s.spec.refused != "":
		if s.target == nil {
			c.text, c.parsed, c.err = "", transport.Access{}, nil // it takes no memory
		}
		return Problem{reason.InvalidKubeconfig, s.spec.refused}
	case s.spec.kubeconfig == "":
		return Problem{reason.NoKubeconfig, s.spec.noKubeconfig}
	case c.text != s.spec.kubeconfig:
		c.text = s.spec.kubeconfig
		c.parsed, c.err = transport.ParseKubeconfig([]byte(c.text))
		c.parsed.Local = c.options.LocalAddresses
	}
	if c.err != nil {
		return Problem{reason.InvalidKubeconfig, fmt.Sprintf("Secret %s%s: %v", c.key.Name, kubeconfigSuffix, c.err)}
	}
	return Problem{}
}

// replaceTarget has the parsed kubeconfig used, and returns false if it is of no use.
func (c *connection) replaceTarget(ctx context.Context, s state) bool {
	t := transport.NewTarget(c.parsed, c.last)
	err := c.prove(ctx, s, t)
	if err == nil {
		c.use(t)
		return true
	}
	t.Close()
	if ctx.Err() == nil {
		c.reject(s, asProblem(err))
	}
	return false
}

// prove returns nil if a target leads to the right cluster, and may be used there.
func (c *connection) prove(ctx context.Context, s state, t *transport.Target) error {
	contactCtx, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	at := c.clock.Now()
	core := corev1client.NewForConfigOrDie(c.requests.Config(c.requests.To(t))) // the config is valid
	found, err := t.Identify(contactCtx, core.RESTClient())
	if s.target == nil && !errors.Is(contactCtx.Err(), context.Canceled) {
		c.observe(c.observation(contactCtx, identifyTimeout, health.Read, at, err))
	}
	if err != nil {
		return err
	}
	t.UID = found
	verdict := identityOf(s.spec.pin, s.uid, found)
	if verdict == other {
		return &transport.ContactError{Reason: reason.WrongCluster, Message: wrongCluster(s.spec.pin, found)}
	}
	if t.User, err = c.hubUser(contactCtx, t); err != nil {
		return err
	}
	if s.target != nil && verdict == same {
		err = c.admit(ctx, t, s.pinned() && c.mayWrite(c.key.Fleet))
	}
	if err == nil && verdict == rebuilt {
		c.reset()
	}
	return err
}

// use swaps the target in. If more than the token has changed, all requests under way end with the old connections.
func (c *connection) use(t *transport.Target) {
	earlier := c.get().target
	taken := false
	inherits := t.Inherit(earlier)
	c.change(func(s *state) {
		if taken = s.target == earlier; taken {
			s.target, s.uid, s.refused = t, t.UID, false
			s.contact, s.kubeconfig = Problem{}, Problem{}
			c.requests.Lead(t)
		}
	})
	if !taken {
		t.Close() // the earlier one was dropped
		return
	}
	c.last = t
	if earlier != nil && !inherits {
		earlier.Close()
	}
	wake.Wake(c.wakeProbe)
	c.logger().Info("Credentials in use", "clusterUID", t.UID, "rotation", earlier != nil, "user", t.User)
}

// reject says why the newest kubeconfig is not in use.
func (c *connection) reject(s state, p Problem) {
	c.change(func(now *state) {
		now.contact, now.kubeconfig = Problem{}, Problem{}
		switch {
		case p.Reason == reason.WrongCluster:
			now.contact = p
		case s.target != nil:
			p.Message += "; the last good kubeconfig stays in use"
			now.kubeconfig = p
		case p.Reason == reason.NoKubeconfig || p.Reason == reason.InvalidKubeconfig:
			now.kubeconfig = p
		default:
			now.contact = p
		}
	})
}

// reset forgets a cluster that is not behind the name any more.
func (c *connection) reset() {
	c.end()
	c.installed = nil
	c.change(func(s *state) {
		s.uid, s.ownsUID, s.tracks = "", false, s.tracks.Forgotten()
		c.skew.Reset()
	})
}

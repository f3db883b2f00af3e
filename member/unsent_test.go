package member_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/member"
)

// client-go looks at the context before it hands a request on, and CapWrites never sees such a write.
func TestAWriteThatClientGoDoesNotSendHasAContextThatSaysWhy(t *testing.T) {
	for name, tc := range map[string]struct {
		until time.Duration // the term ends then
		sent  int
	}{
		"because its term was over before":                             {0, 0},
		"because its term ended while the API server had it wait":      {time.Second, 1},
		"because its term ended while it waited for the next try, too": {6 * time.Second, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, sent := newCluster(t), 0
				c.write(ns, us, 7)
				ctx, done := c.context(ns)
				defer done()
				cfg := &rest.Config{Host: "http://member", Transport: transport(func(*http.Request) (*http.Response, error) {
					sent++
					return &http.Response{
						StatusCode: http.StatusTooManyRequests,
						Header:     http.Header{"Retry-After": {"5"}},
						Body:       http.NoBody,
					}, nil
				})}
				cfg.Wrap(member.CapWrites)
				clients, err := kubernetes.NewForConfig(cfg)
				if err != nil {
					t.Fatal(err)
				}
				end := func() { c.write(ns, them, 8) }
				if tc.until == 0 {
					end()
				} else {
					time.AfterFunc(tc.until, end)
				}
				err = clients.CoreV1().ConfigMaps(ns).Delete(ctx, "x", metav1.DeleteOptions{})
				if err == nil || sent != tc.sent {
					t.Errorf("err = %v, sent %d times, want %d", err, sent, tc.sent)
				}
				if why := context.Cause(ctx); !errors.Is(err, context.Canceled) || !errors.Is(why, member.ErrLost) {
					t.Errorf("err = %v, and the context ended because of %v", err, why)
				}
			})
		})
	}
}

package publish

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/e2e/fleet"
)

// A real API server is asked what the rules of this package rest on: a request for a Lease that was deleted since, and
// perhaps made again, changes nothing.
func TestOnARealServer(t *testing.T) {
	log.SetLogger(logr.Discard()) // it complains otherwise
	client := kubernetes.NewForConfigOrDie(fleet.NewWith(t, fleet.Options{Uninstalled: true}).Hub().AdminConfig())
	key := types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "leasecast"}
	p := Publisher{Options: Options{Client: client.CoordinationV1()}}
	send := func(a action, obj *coordinationv1.Lease) (*coordinationv1.Lease, error) {
		return p.send(t.Context(), key, step{action: a, lease: obj}, time.Minute)
	}
	deleted, err := send(create, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: key.Name}})
	must(err)
	_, err = send(remove, deleted)
	must(err)
	late := func(what string) {
		for a, name := range map[action]string{update: "update", remove: "removal"} {
			if _, err := send(a, deleted); outcomeOf(err) != conflict {
				t.Errorf("a late %s %s is answered with %v", name, what, err)
			}
		}
	}
	late("of a Lease that is gone")
	unknown := deleted.DeepCopy()
	unknown.UID, unknown.ResourceVersion = "", ""
	if _, err := send(update, unknown); err != nil {
		t.Errorf("an update without a UID creates no Lease, so that it needs none: %v", err)
	}
	late("of a Lease that was made again")
}

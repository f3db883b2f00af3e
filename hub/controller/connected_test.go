package controller

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/hub/fleet"
)

func spaceOf(name, team string) corev1.Namespace {
	return corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid", ResourceVersion: "1", Labels: map[string]string{"team": team}},
	}
}

// What a connected member shows is decided on if a policy wants it.
func TestWhatIsSeenOfAConnectedMember(t *testing.T) {
	east := &outpost{spaces: []corev1.Namespace{spaceOf("shop", ""), spaceOf("till", "shops"), spaceOf("desk", "offices")}}
	kubeconfig := east.reached(t, "east")
	synctest.Test(t, func(t *testing.T) {
		p := policyOf("fleet", "shops", "shop")
		p.Spec.Namespaces.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "shops"}}
		m := newMusterBy(t, clocktest.NewBubble(musterStart), kubeconfig, pinned("east"), clusterOf("fleet", "west", "5"), p,
			policyOf("fleet2", "others", "desk"))
		pass(5 * time.Second)
		if !m.member("east").Connected {
			t.Fatalf("it is not connected: %+v", m.member("east").Problem)
		}
		for name, stranger := range map[string]bool{"east": false, "west": true} {
			if got := m.members.isStranger(fleet.Key{Fleet: "fleet", Name: name}); got != stranger {
				t.Errorf("%s counts as one that was never connected: %v", name, got)
			}
		}
		if !m.source.synced() {
			t.Error("the Clusters are not known")
		}
		var names []string
		for _, key := range m.sources.namespacesOf(t.Context(), "fleet") {
			names = append(names, key.String())
		}
		if slices.Sort(names); !slices.Equal(names, []string{"fleet/shop", "fleet/till"}) {
			t.Errorf("to be decided on are %q", names)
		}
		if ns, err := m.source.namespace(t.Context(), m.member("east"), "till"); err != nil || ns.Labels["team"] != "shops" {
			t.Errorf("till in east: %+v, %v", ns, err)
		}
		if _, err := m.source.namespace(t.Context(), m.member("east"), "nowhere"); !apierrors.IsNotFound(err) {
			t.Errorf("a namespace that is not there: %v", err)
		}
		if _, err := m.source.namespace(t.Context(), m.member("west"), "till"); !errors.Is(err, errDisengaged) {
			t.Errorf("a member that is not connected: %v", err)
		}

		// The clock of the server is years off that of the bubble.
		m.status()
		pass(5 * time.Second)
		m.sources.recordProblem(eastKey)
		if told := strings.Join(m.events.events, "|"); !strings.Contains(told, "Warning ClockSkewed") {
			t.Errorf("told %q (%+v)", told, m.member("east").Problem)
		}
	})
}

package fleet

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/leasecast/leasecast/api/lease"
	leaseclock "github.com/leasecast/leasecast/api/lease/clock"
	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/health"
)

func TestWhatPoliciesDemandOfAMember(t *testing.T) {
	of := func(interval, timeout, skew time.Duration) Probing {
		return Probing{Interval: interval, Timeout: timeout, Skew: skew}
	}
	const s = time.Second
	var many []Probing
	var longest []time.Duration
	for i := range 3 * maxTimeouts {
		timeout := time.Duration(i+1) * s
		many = append(many, of(4*s, timeout, s))
		if i >= 2*maxTimeouts {
			longest = append(longest, timeout)
		}
	}
	many[0].Interval = 2 * s
	for name, test := range map[string]struct {
		by   []Probing
		want demand
		eps  []time.Duration
	}{
		"no policy: the default": {nil, defaultDemand, nil},
		"one policy: its own":    {[]Probing{of(2*s, s, s)}, demand{2 * s, []time.Duration{s}}, []time.Duration{s}},
		"a policy that asks for less: as often as by default": {
			[]Probing{of(20*s, 10*s, s)}, demand{5 * s, []time.Duration{10 * s}}, []time.Duration{s},
		},
		"two policies with one timeout: the shorter interval": {
			[]Probing{of(4*s, s, s), of(2*s, s, 2*s)}, demand{2 * s, []time.Duration{s}}, []time.Duration{s, 2 * s},
		},
		"two timeouts: both, by the shorter interval": {
			[]Probing{of(4*s, 2*s, s), of(2*s, s, s)}, demand{2 * s, []time.Duration{s, 2 * s}}, []time.Duration{s},
		},
		"too many timeouts: the longest, by the shortest interval": {many, demand{2 * s, longest}, []time.Duration{s}},
	} {
		t.Run(name, func(t *testing.T) {
			got, eps := demanded(test.by)
			if !reflect.DeepEqual(got, test.want) || !slices.Equal(eps, test.eps) {
				t.Errorf("%v under %v; want %v, %v", got, eps, test.want, test.eps)
			}
		})
	}
}

func TestWhichPoliciesAMemberIsProbedFor(t *testing.T) {
	here := labels.SelectorFromSet(labels.Set{"region": "here"})
	hasty := Probing{Clusters: here, Interval: time.Second, Timeout: 50 * time.Millisecond, Skew: time.Millisecond}
	for name, test := range map[string]struct {
		fleet, region string
		want          bool
	}{
		"for one of its fleet that selects it":             {testKey.Fleet, "here", true},
		"not for one of its fleet that does not select it": {testKey.Fleet, "there", false},
		"not for one of another fleet":                     {"elsewhere", "here", false},
	} {
		t.Run(name, func(t *testing.T) {
			p, m := newTestProvider(clocktest.NewHand(clocktest.Start))
			label := func(s spec) {
				m.setSpec(s)
				p.demandProbes(m)
			}
			probed := func() bool {
				return reflect.DeepEqual(m.get().demand, demand{time.Second, []time.Duration{hasty.Timeout}})
			}
			label(spec{labels: map[string]string{"region": test.region}})
			p.SetProbing(test.fleet, []Probing{hasty})
			if probed() != test.want || len(m.skew.States()) > 0 != test.want {
				t.Errorf("probed by %v, clocks judged by %v", m.get().demand, m.skew.States())
			}
			label(spec{labels: map[string]string{"region": "here"}, pin: "another edit"})
			label(spec{labels: map[string]string{"region": "nowhere"}})
			if got := m.get().demand; !reflect.DeepEqual(got, defaultDemand) {
				t.Errorf("once its labels have changed: %v", got)
			}
		})
	}
}

// A silent member has failed for who is impatient, and is asked again, while who is patient still waits.
func TestSilenceIsJudgedUnderEachTimeout(t *testing.T) {
	const hasty, patient = 20 * time.Millisecond, time.Hour
	arrived := make(chan struct{}, 100)
	s := apiServer(t, func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
	})
	_, m := newTestProvider(&leaseclock.System{})
	m.state.target = targetTo(t, accessTo(t, s), nil)
	m.requests.Lead(m.state.target)
	m.setProbing([]Probing{
		{Clusters: labels.Everything(), Interval: hasty, Timeout: hasty},
		{Clusters: labels.Everything(), Interval: hasty, Timeout: patient},
	})
	ctx, cancel := context.WithCancel(t.Context())
	var probing sync.WaitGroup
	probing.Go(func() { newProber(m).run(ctx) })
	for range 5 {
		within(t, arrived)
	}
	late := func(timeout time.Duration) bool {
		return strings.Contains(Member{live: m}.Health(health.Thresholds{Timeout: timeout}).Message, "in time")
	}
	for !late(hasty) {
		within(t, arrived)
	}
	if s := m.get(); late(patient) || s.problem(testKey, nil).Reason == reason.Unreachable {
		t.Errorf("it has failed for who is patient, or its Cluster shows %v", s.problem(testKey, nil))
	}
	cancel()
	probing.Wait()
}

// Requests for Leases that are answered with an error are not held against a member: its probes are.
func TestAMemberThatAnswersWithErrorsAloneFailsItsProbes(t *testing.T) {
	for _, status := range []int{http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			s := apiServer(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
			_, m := newTestProvider(&leaseclock.System{})
			m.state.target = targetTo(t, accessTo(t, s), nil)
			m.requests.Lead(m.state.target)
			p := newProber(m)
			for kind, probe := range map[health.Kind]func(
				context.Context, *transport.Target, lease.Reading,
			) (lease.Reading, error){health.Read: p.read, health.Write: p.write} {
				p.send(t.Context(), m.get(), kind, m.clock.Now(), probe)
				p.sending.Wait()
				if o := m.state.tracks[0].Track.Failure(); o.Kind != kind || o.Reason != reason.Unreachable {
					t.Errorf("the %s has observed %+v", kind, o)
				}
			}
		})
	}
}

// A probe may take several requests. Its timeout is for all of them, and so is the judgement.
func TestAProbeThatWasCutOffHasFailedUnderItsOwnTimeout(t *testing.T) {
	m, c := newTestMember(t)
	over, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	<-over.Done()
	o := m.observation(over, time.Second, health.Write, c.Now(), errors.New("cut off"))
	if !o.Silent || o.Took != time.Second {
		t.Errorf("%+v", o)
	}
	c.Advance(time.Millisecond)
	answer := m.observation(t.Context(), time.Second, health.Write, o.At, errors.New("refused"))
	if answer.Silent || answer.Took != time.Millisecond {
		t.Errorf("an answer: %+v", answer)
	}
}

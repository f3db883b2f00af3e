package fleet

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	leaseclock "github.com/leasecast/leasecast/api/lease/clock"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/health"
)

func TestWhatPoliciesDemandOfAMember(t *testing.T) {
	of := func(interval, timeout, skew time.Duration) Probing {
		return Probing{Interval: interval, Timeout: timeout, Skew: skew}
	}
	const s = time.Second
	many := make([]Probing, 0, 3*maxTimeouts)
	for i := range 3 * maxTimeouts {
		many = append(many, of(4*s, time.Duration(i+1)*s, s))
	}
	many[0].Interval = 2 * s
	for name, test := range map[string]struct {
		by    []Probing
		paces []pace
		eps   []time.Duration
	}{
		"nobody asks: the default":                     {nil, []pace{{5 * s, 3 * s}}, nil},
		"one policy has its own":                       {[]Probing{of(2*s, s, s)}, []pace{{2 * s, s}}, []time.Duration{s}},
		"one that asks for less is probed as often":    {[]Probing{of(20*s, 10*s, s)}, []pace{{5 * s, 10 * s}}, []time.Duration{s}},
		"policies with one timeout share the probes":   {[]Probing{of(4*s, s, s), of(2*s, s, 2*s)}, []pace{{2 * s, s}}, []time.Duration{s, 2 * s}},
		"policies with two timeouts have two":          {[]Probing{of(4*s, 2*s, s), of(2*s, s, s)}, []pace{{2 * s, s}, {4 * s, 2 * s}}, []time.Duration{s}},
		"of many timeouts the longest are told apart":  {many[1:], pacesFrom(2*maxTimeouts+1, 4*s), []time.Duration{s}},
		"who is impatient beyond that is probed often": {many, append([]pace{{2 * s, (2*maxTimeouts + 1) * s}}, pacesFrom(2*maxTimeouts+2, 4*s)...), []time.Duration{s}},
	} {
		t.Run(name, func(t *testing.T) {
			paces, eps := demanded(test.by)
			if !slices.Equal(paces, test.paces) || !slices.Equal(eps, test.eps) {
				t.Errorf("%v under %v; want %v, %v", paces, eps, test.paces, test.eps)
			}
		})
	}
}

// pacesFrom are those with the timeouts of that many seconds and more, up to the longest of the test.
func pacesFrom(seconds int, interval time.Duration) (ps []pace) {
	for ; seconds <= 3*maxTimeouts; seconds++ {
		ps = append(ps, pace{interval, time.Duration(seconds) * time.Second})
	}
	return ps
}

func TestWhichPoliciesAMemberIsProbedFor(t *testing.T) {
	here := labels.SelectorFromSet(labels.Set{"region": "here"})
	hasty := Probing{Clusters: here, Interval: time.Second, Timeout: 50 * time.Millisecond, Skew: time.Millisecond}
	usual := []pace{{defaultInterval, defaultTimeout}}
	for name, test := range map[string]struct {
		fleet, region string
		want          []pace
	}{
		"for one of its fleet that selects it":             {testKey.Fleet, "here", []pace{{time.Second, 50 * time.Millisecond}}},
		"not for one of its fleet that does not select it": {testKey.Fleet, "there", usual},
		"not for one of another fleet":                     {"elsewhere", "here", usual},
	} {
		t.Run(name, func(t *testing.T) {
			m, _ := newTestMember(t)
			m.setSpec(spec{labels: map[string]string{"region": test.region}})
			m.p.SetProbing(test.fleet, []Probing{hasty})
			if got := m.get().paces; !slices.Equal(got, test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
			judged := len(m.clock.States()) > 0
			if demanded := !slices.Equal(test.want, usual); judged != demanded {
				t.Errorf("its clocks are judged under the ε: %v", judged)
			}
			m.setSpec(spec{labels: map[string]string{"region": "here"}, pin: "another edit"})
			m.setSpec(spec{labels: map[string]string{"region": "nowhere"}})
			if got := m.get().paces; !slices.Equal(got, usual) {
				t.Errorf("once its labels have changed: %v", got)
			}
		})
	}
}

// A far cluster answers after 200 ms. One policy waits for 50 ms, another one for 3 s.
func TestAnImpatientPolicyMakesNoMemberUnreachableForAnother(t *testing.T) {
	m, c := newTestMember(t)
	m.p.SetProbing(testKey.Fleet, []Probing{
		{Clusters: labels.Everything(), Interval: time.Second, Timeout: 50 * time.Millisecond},
		{Clusters: labels.Everything(), Interval: time.Second, Timeout: 3 * time.Second},
	})
	for range 60 {
		sent := c.Now()
		for _, k := range []health.Kind{health.Read, health.Write} {
			m.observe(health.Observation{Kind: k, At: sent, OK: true, Took: 200 * time.Millisecond})
			m.observe(health.Observation{Kind: k, At: sent, Took: 50 * time.Millisecond, Silent: true, Reason: reason.Unreachable})
		}
		c.Advance(time.Second)
	}
	for timeout, want := range map[time.Duration]health.State{50 * time.Millisecond: health.Unknown, 3 * time.Second: health.Healthy} {
		th := health.Thresholds{Timeout: timeout, UnreachableAfter: 2 * time.Second, RecoverAfter: time.Second}
		if v := (Member{live: m}).Health(th); v.State != want {
			t.Errorf("for whoever waits %v it is %v: %s", timeout, v.State, v.Message)
		}
	}
	if p := m.problem(m.get(), nil); p.Reason == reason.Unreachable {
		t.Errorf("its Cluster is told of %v", p)
	}
}

// Each timeout has a prober of its own: who is patient with a silent member does not hold up who is not.
func TestProbersDoNotWaitForEachOther(t *testing.T) {
	const hasty, patient = 20 * time.Millisecond, time.Hour
	arrived := make(chan struct{}, 100)
	s := apiServer(t, func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
	})
	m, _ := newTestMember(t)
	m.p.clock = &leaseclock.System{}
	m.state.target = targetTo(t, accessTo(t, s, "", "token"), nil)
	m.p.SetProbing(testKey.Fleet, []Probing{
		{Clusters: labels.Everything(), Interval: hasty, Timeout: hasty},
		{Clusters: labels.Everything(), Interval: hasty, Timeout: patient},
	})
	ctx, cancel := context.WithCancel(t.Context())
	var probing sync.WaitGroup
	probing.Go(func() { m.probe(ctx) })
	for range 5 { // one is of the patient
		select {
		case <-arrived:
		case <-time.After(rotationPatience):
			t.Fatal("it is not asked again")
		}
	}
	if track := m.get().tracks.Of(patient); track.Failure() != (health.Observation{}) {
		t.Errorf("it has failed for who is patient: %+v", track.Failure())
	}
	cancel()
	probing.Wait()
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
	if o := m.observation(t.Context(), time.Second, health.Write, o.At, errors.New("refused")); o.Silent || o.Took != time.Millisecond {
		t.Errorf("an answer: %+v", o)
	}
	m.observe(o)
	under, patient := m.get().tracks.Under([]time.Duration{time.Second}), m.get().tracks
	if track := under.Observe(o).MostPatient(); track.Failure().Message != "cut off" {
		t.Errorf("under its timeout: %+v", track.Failure())
	}
	if track := patient.MostPatient(); track.Failure() != (health.Observation{}) {
		t.Errorf("under a longer one: %+v", track.Failure())
	}
}

package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must"
)

// badPriorities are values that a label can hold and that are no priority.
var badPriorities = map[string]string{
	"a word":             "abc",
	"empty":              "",
	"an exponent":        "1e3",
	"twenty digits":      "12345678901234567890",
	"one above 32 bits":  "2147483648",
	"digits and letters": "10x",
}

func TestAPriorityThatIsNoIntegerMakesNoCandidateAndDisturbsNobody(t *testing.T) {
	t.Parallel()
	w, a, _ := eastLeads(t, steady)
	j := w.keeps("east", a)
	for name, value := range badPriorities {
		t.Run(name, func(t *testing.T) {
			w := w.on(t)
			w.setPriority("south", value)
			w.awaitUnfit("south", a, reason.InvalidPriority, v1alpha1.PriorityLabel, `"`+value+`"`, "0 to 2147483647")
			w.awaitEvent("south", reason.InvalidPriority, `"`+value+`"`)
			w.setPriority("south", "10")
			w.awaitEligible("south", a)
		})
	}
	t.Logf("longest time between two renewals: %v", j.check())
}

func TestALeaderWhosePriorityBecomesIllegibleLosesNothing(t *testing.T) {
	t.Parallel()
	w, a, _ := eastLeads(t, brief)
	j := w.keeps("east", a)
	for _, slip := range []string{"a-hundred", "1OO"} {
		w.setPriority("east", slip)
		w.awaitUnfit("east", a, reason.InvalidPriority, `"`+slip+`"`, "keeps what it leads")
	}
	w.setPriority("south", "75") // a change that is none of east's business
	w.Eventually("the record shows it", soon, func() error {
		if c := must.Get(w.Candidate(a, "south")); c.Priority != 75 {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	w.setPriority("east", "100")
	w.awaitEligible("east", a)
	j.check()
	w.setPriority("east", "abc")
	w.awaitUnfit("east", a, reason.InvalidPriority)
	w.setPriority("east", "5") // what it says now, it says
	w.Leads("south", a, w.ordered(), all...)
}

func TestNamesAsLongAsKubernetesAllowsAreManagedAndLongerOnesAreRefusedInWords(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{"east": "100", "west": "50"})
	w.Timings = brief
	long := w.namespace(strings.Repeat("n", 63-len(w.Fleet)-1), all...)
	w.Policy("p", long)
	// <cluster>.<fleet> must be a DNS subdomain, and <cluster>-kubeconfig too.
	fits := strings.Repeat("c", 63)
	limit := 253 - len("."+w.Fleet)
	w.addCluster(fits, "10", w.kubeconfig("south"))
	w.addCluster(strings.Repeat("d", limit+1), "1000", nil)
	w.addCluster(strings.Repeat("e", 253), "1000", nil)
	w.startHub()
	w.Leads("east", long, firstElection, all...)
	j := w.keeps("east", long)
	w.awaitEligible(fits, long)
	for _, name := range []string{strings.Repeat("d", limit+1), strings.Repeat("e", 253)} {
		w.awaitUnfit(name, long, reason.NameTooLong, "characters", "at most 253")
		w.awaitEvent(name, reason.NameTooLong, "at most 253")
	}
	j.check()
	w.setPriority(fits, "200")
	w.Leads(fits, long, w.ordered(), all...)
}

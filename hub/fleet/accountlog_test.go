package fleet

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/hub/account"
)

// noted are the lines of a log, without their values.
type noted []string

// logsTo has a connection log into it.
func (n *noted) logsTo(c *connection) {
	c.lifetime = log.IntoContext(c.lifetime, funcr.New(func(_, line string) {
		_, text, _ := strings.Cut(line, `"msg"="`)
		text, _, _ = strings.Cut(text, `"`)
		*n = append(*n, text)
	}, funcr.Options{}))
}

// Each further refusal by the member wakes run.
func TestComplaintsAboutTheAccountAreTakenOneAtATime(t *testing.T) {
	for _, writes := range []bool{true, false} {
		m, clock := newTestMember(t)
		m.p.options.MayWrite = func() bool { return writes }
		young := account.Credentials{Token: "own", Renew: clock.Now().Boot + time.Hour}
		c := worksByAccount(t, m, accessTo(t, apiServer(t, grants), "", "admin"), young)
		c.tends, c.installs = true, true
		lacks := func() { m.change(func(s *state) { s.accountLacks = true }) }
		lacks()
		if c.dropRefused(m.get(), clock.Now()); c.complains() || c.account.installed {
			t.Errorf("writes %v: the first one is not taken", writes)
		}
		if due := c.accountDue(clock.Now(), writes); due != writes {
			t.Errorf("writes %v: a repair is due at once: %v", writes, due)
		}
		c.account.installed = writes // it was repaired
		lacks()
		clock.Advance(accountPause / 2)
		if c.dropRefused(m.get(), clock.Now()); !c.complains() {
			t.Errorf("writes %v: the second one is taken at once", writes)
		}
		if got := c.untilAccount(forever); got != accountPause/2 {
			t.Errorf("writes %v: the second one is looked at after %v", writes, got)
		}
		clock.Advance(accountPause / 2)
		if c.dropRefused(m.get(), clock.Now()); c.complains() {
			t.Errorf("writes %v: the second one is never taken", writes)
		}
	}
}

func TestWhatIsLoggedOfComplaintsAboutTheAccount(t *testing.T) {
	const lacks = "The hub's own account lacks rights in the member: it is to be repaired"
	const refused = "The member refuses the hub's own account: it is to be installed anew"
	for name, test := range map[string]struct {
		refused, writes bool
		want            noted
	}{
		"rights are missing":         {false, true, noted{lacks}},
		"the account is refused":     {true, true, noted{refused}},
		"a standby repairs nothing":  {false, false, nil},
		"a standby installs nothing": {true, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m, clock := newTestMember(t)
			m.p.options.MayWrite = func() bool { return test.writes }
			c := worksByAccount(t, m, accessTo(t, apiServer(t, grants), "", "admin"), account.Credentials{Token: "own"})
			var got noted
			got.logsTo(c)
			for range 3 { // the others say nothing new as long as nothing was repaired
				m.change(func(s *state) { s.accountRefused, s.accountLacks = test.refused, !test.refused })
				c.dropRefused(m.get(), clock.Now())
				clock.Advance(accountPause)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("logged: %q, want %q", got, test.want)
			}
		})
	}
}

func TestWhatFailsAboutTheAccountIsLoggedOnceUntilItChanges(t *testing.T) {
	refusal, refusesTokens := "", false
	s := apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		isToken := strings.HasSuffix(r.URL.Path, "/token")
		if refusal == "" || r.Method == http.MethodGet || isToken && !refusesTokens {
			grants(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		reply(w, fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":%q}`, refusal))
	})
	m, clock := newTestMember(t)
	c := worksByAccount(t, m, accessTo(t, s, "", "admin"), account.Credentials{Token: "own", Renew: clock.Now().Boot + time.Hour})
	const repair, token = "The hub's own account in the member is not repaired", "No new token of the hub's own account in the member"
	for _, step := range []struct {
		name, refusal string
		token         bool
		want          noted
	}{
		{"a repair is refused", "no", false, noted{repair}},
		{"it is refused again", "no", false, nil},
		{"it is refused in other words", "never", false, noted{repair}},
		{"it is done", "", false, nil},
		{"the next one is refused as the last one was", "never", false, noted{repair}},
		{"a token is refused", "never", true, noted{token}},
		{"it is refused again, in the same words", "never", true, nil},
	} {
		var got noted
		got.logsTo(c)
		refusal, refusesTokens = step.refusal, step.token
		if c.account.installed = false; step.token {
			c.account.credentials.Renew = clock.Now().Boot
		}
		if err := c.keepAccount(c.lifetime, true); (err != nil) != (refusal != "") {
			t.Errorf("%s: %v", step.name, err)
		}
		got = slices.DeleteFunc(got, func(line string) bool { return line == "Credentials in use" })
		if !slices.Equal(got, step.want) {
			t.Errorf("%s: logged %q, want %q", step.name, got, step.want)
		}
		clock.Advance(accountRetry)
	}
}

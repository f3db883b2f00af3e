package member_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/member"
)

func TestNewNeedsNoOptions(t *testing.T) {
	m, err := member.New(&rest.Config{}, member.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Healthz(nil); err != nil {
		t.Errorf("Healthz = %v", err)
	}
}

func TestTheShortestStaleAfterIsTenSeconds(t *testing.T) {
	if _, err := member.New(&rest.Config{}, member.Options{StaleAfter: 10 * time.Second}); err != nil {
		t.Error(err)
	}
}

func TestNewRefusesAnAddressThatIsNone(t *testing.T) {
	_, err := member.New(&rest.Config{Host: "http://no such host"}, member.Options{})
	if err == nil || !strings.Contains(err.Error(), "member: clients") {
		t.Errorf("err = %v", err)
	}
}

// The local election of a controller-runtime manager is another one.
func TestAMemberRunsInEveryReplica(t *testing.T) {
	if (&member.Member{}).NeedLeaderElection() {
		t.Error("it runs only where the local election is won")
	}
}

func TestARegistrationIsKeptInTheNamespaceOfThePod(t *testing.T) {
	file := filepath.Join(t.TempDir(), "namespace")
	if err := os.WriteFile(file, []byte(home+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	defer member.SetNamespaceFile(file)()
	synctest.Test(t, func(t *testing.T) {
		asked := &member.Registration{Client: client(t, member.CapWrites)}
		r := newReaderWith(t, member.Options{Registration: asked})
		defer r.start(t)()
		synctest.Wait()
		if got := r.registered(); len(got) != 1 || got[0].Namespace != home {
			t.Errorf("registered %v, want one in %s", got, home)
		}
		if asked.Namespace != "" {
			t.Error("the caller's options were changed")
		}
	})
}

func TestAMemberKeepsToItsOwnLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &reader{server: newServer(), cluster: newCluster(t)}
		var agents, wants []string
		cfg := &rest.Config{
			Host: "http://member", QPS: 0.001, Burst: 1, Timeout: time.Second,
			ContentConfig: rest.ContentConfig{ContentType: "application/json"},
			Transport: transport(func(req *http.Request) (*http.Response, error) {
				agents, wants = append(agents, req.UserAgent()), append(wants, req.Header.Get("Accept"))
				return r.RoundTrip(req)
			}),
		}
		m, err := member.New(cfg, member.Options{Clock: r.cluster.clock})
		if err != nil {
			t.Fatal(err)
		}
		r.Member = m
		stop := r.start(t)
		pass(10 * time.Minute)
		r.put(r.cluster.leaseOf(ns, us, 7))
		if !r.leads(ns) || r.asks() < 10 {
			t.Errorf("leads = %v after %d lists, want one a minute", r.leads(ns), r.asks())
		}
		stop()
		for i := range agents {
			if !strings.HasSuffix(agents[i], "/leasecast-member") || !strings.Contains(wants[i], "protobuf") {
				t.Errorf("a request of %q for %q", agents[i], wants[i])
			}
		}
		if cfg.UserAgent != "" || cfg.QPS != 0.001 || cfg.Timeout != time.Second || cfg.ContentType != "application/json" {
			t.Errorf("the caller's configuration was changed: %v", cfg)
		}
	})
}

const (
	cannotFollow   = "Cannot follow leases: bind leasecast-reader (config/reader) to the account of this program"
	follows        = "Follows leases again"
	cannotRegister = "Cannot register: bind leasecast-registration (config/reader) to the account of this program " +
		"in namespace home"
	leavesIt = "Leaves its registration to the hub"
)

// told notes which of these messages are logged.
func told(of ...string) (l logr.Logger, all func() []string) {
	var mu sync.Mutex
	var made []string
	l = funcr.New(func(_, line string) {
		mu.Lock()
		defer mu.Unlock()
		for _, text := range of {
			if strings.Contains(line, `"msg"="`+text+`"`) {
				made = append(made, text)
			}
		}
	}, funcr.Options{})
	return l, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(made)
	}
}

func TestTheEndIsNoTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, all := told(cannotFollow, cannotRegister)
		r := newReaderWith(t, member.Options{Logger: log})
		r.become(hangs)
		stop := r.start(t)
		synctest.Wait()
		stop()
		if got := all(); len(got) > 0 {
			t.Errorf("it says %q", got)
		}
	})
}

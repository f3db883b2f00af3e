package main

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/go-logr/logr/funcr"

	"github.com/leasecast/leasecast/member/command"
)

func TestWhatIsAskedOfTheGate(t *testing.T) {
	cases := map[string]struct {
		args    string
		command []string
		check   bool
		err     string // contains
	}{
		"a program":                     {"-namespace shop -- sleep -x 1", []string{"sleep", "-x", "1"}, false, ""},
		"a program without dashes":      {"-namespace shop sleep 1", []string{"sleep", "1"}, false, ""},
		"a program that is named check": {"-namespace shop -- check", []string{"check"}, false, ""},
		"an address alone":              {"-namespace shop -listen 127.0.0.1:4040", nil, false, ""},
		"a check":                       {"check -namespace shop", nil, true, ""},
		"nothing":                       {"-namespace shop", nil, false, "nothing to do"},
		"no namespace":                  {"-- sleep 1", nil, false, "-namespace is empty"},
		"a check of no namespace":       {"check", nil, true, "-namespace is empty"},
		"a check with a program":        {"check -namespace shop -- sleep 1", nil, true, "check takes no program"},
		"a stop after the deadline":     {"-namespace shop -stop-ahead=-1s -- sleep 1", nil, false, "must not be negative"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f, err := parse(strings.Fields(tc.args))
			switch {
			case tc.err == "" && err != nil, tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
				t.Errorf("err = %v, want %q", err, tc.err)
			case tc.err == "" && !slices.Equal(f.command, tc.command), f.check != tc.check:
				t.Errorf("command %q, check %v; want %q, %v", f.command, f.check, tc.command, tc.check)
			}
		})
	}
}

// A script must not take a mistake of its own for an answer.
func TestACheckThatIsMisusedCannotTell(t *testing.T) {
	for _, args := range []string{"check", "check -no-such-flag", "check -namespace shop -kubeconfig /nowhere"} {
		if code, err := run(strings.Fields(args)); code != command.CannotTell || err == nil {
			t.Errorf("%s: exit code %d, err %v; want %d and an error", args, code, err, command.CannotTell)
		}
	}
}

// A script that asks for help of check, by mistake or not, must not read that this cluster leads.
func TestHelpIsNoAnswer(t *testing.T) {
	for args, want := range map[string]int{
		"check -h":                     command.CannotTell,
		"check -namespace shop --help": command.CannotTell,
		"-h":                           0,
	} {
		if code, err := run(strings.Fields(args)); code != want || err != nil {
			t.Errorf("%s: exit code %d, err %v; want %d", args, code, err, want)
		}
	}
}

// The gate waits for all children, so a credential plugin would lose its own.
func TestNoProgramRunsBesideACredentialPlugin(t *testing.T) {
	const head = "apiVersion: v1\nkind: Config\ncurrent-context: c\n" +
		"clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n" +
		"contexts: [{name: c, context: {cluster: c, user: u}}]\n"
	plugin := head + "users: [{name: u, user: {exec: " +
		"{apiVersion: client.authentication.k8s.io/v1, command: aws, interactiveMode: Never}}}]\n"
	cases := map[string]struct {
		kubeconfig string
		command    []string
		err        string // contains
	}{
		"a program and a plugin":        {plugin, []string{"sleep", "1"}, "use a kubeconfig with a token or a certificate"},
		"a plugin alone":                {plugin, nil, ""},
		"a program, and a token for it": {head + "users: [{name: u, user: {token: t}}]\n", []string{"sleep", "1"}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "kubeconfig")
			if err := os.WriteFile(file, []byte(tc.kubeconfig), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := config(flags{kubeconfig: file, command: tc.command})
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("err = %v, want %q", err, tc.err)
			}
		})
	}
}

// A gate that serves nobody any more must be seen to fail, where it does nothing else.
func TestHowAGateBesideAProgramEnds(t *testing.T) {
	cases := map[string]struct {
		happens func(listener net.Listener, signals chan<- os.Signal)
		code    int
	}{
		"with an error when it can serve no more": {
			happens: func(listener net.Listener, _ chan<- os.Signal) { _ = listener.Close() },
			code:    command.Failed,
		},
		"with 0 when it is asked to": {func(_ net.Listener, signals chan<- os.Signal) { signals <- syscall.SIGTERM }, 0},
		"not by a signal that means something else": {func(_ net.Listener, signals chan<- os.Signal) {
			signals <- syscall.SIGHUP
			signals <- syscall.SIGINT
		}, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			var said strings.Builder
			log := funcr.New(func(_, args string) {
				mu.Lock()
				defer mu.Unlock()
				said.WriteString(args)
			}, funcr.Options{})
			s := serve(listener, http.NotFoundHandler(), log)
			defer s.end()
			signals := make(chan os.Signal, 2)
			tc.happens(listener, signals)
			if code, err := s.wait(signals); code != tc.code || (err != nil) != (code != 0) {
				t.Errorf("it ends with %d, %v; want %d", code, err, tc.code)
			}
			mu.Lock()
			defer mu.Unlock()
			logged, address := said.String(), listener.Addr().String()
			failed := strings.Contains(logged, "served no more")
			if failed != (tc.code != 0) || !strings.Contains(logged, address) {
				t.Errorf("the log has %s", logged)
			}
		})
	}
}

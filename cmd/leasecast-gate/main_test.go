package main

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/go-logr/logr/funcr"

	"github.com/leasecast/leasecast/member/command"
)

func TestParse(t *testing.T) {
	for args, row := range map[string]struct {
		command []string
		err     string // empty: none
	}{
		"-namespace shop -- sleep -x 1":              {[]string{"sleep", "-x", "1"}, ""},
		"-namespace shop sleep 1":                    {[]string{"sleep", "1"}, ""},
		"-namespace shop -- check":                   {[]string{"check"}, ""},
		"-namespace shop -listen 127.0.0.1:4040":     {nil, ""},
		"check -namespace shop":                      {nil, ""},
		"-namespace shop":                            {nil, "nothing to do"},
		"-- sleep 1":                                 {nil, "-namespace is empty"},
		"check":                                      {nil, "-namespace is empty"},
		"check -namespace shop -- sleep 1":           {nil, "check takes no program"},
		"-namespace shop -stop-ahead=-1s -- sleep 1": {nil, "must be 0 or at least 500ms"},
		"-namespace shop -stop-ahead=499ms -- true":  {nil, "must be 0 or at least 500ms"},
		"-namespace shop -stop-ahead=500ms -- true":  {[]string{"true"}, ""},
	} {
		f, err := parse(strings.Fields(args))
		switch {
		case row.err == "" && err != nil, row.err != "" && (err == nil || !strings.Contains(err.Error(), row.err)):
			t.Errorf("%s: err = %v, want %q", args, err, row.err)
		case row.err == "" && !slices.Equal(f.command, row.command), f.check != strings.HasPrefix(args, "check"):
			t.Errorf("%s: command %q, check %v; want %q", args, f.command, f.check, row.command)
		}
	}
}

// A script must not take a mistake, or help, for the answer that this cluster leads.
func TestCheckThatIsMisusedCannotTell(t *testing.T) {
	for args, row := range map[string]struct {
		code  int
		fails bool
	}{
		"check":               {command.CannotTell, true},
		"check -no-such-flag": {command.CannotTell, true},
		"check -namespace shop -kubeconfig /nowhere": {command.CannotTell, true},
		"check -h":                     {command.CannotTell, false},
		"check -namespace shop --help": {command.CannotTell, false},
		"-h":                           {0, false},
	} {
		if code, err := run(strings.Fields(args)); code != row.code || (err != nil) != row.fails {
			t.Errorf("%s: exit code %d, err %v; want %+v", args, code, err, row)
		}
	}
}

// The gate waits for all children, so a credential plugin would lose its own.
func TestNoProgramRunsBesideACredentialPlugin(t *testing.T) {
	const plugin = "{exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, interactiveMode: Never}}"
	for name, row := range map[string]struct {
		user    string
		command []string
		err     string // empty: none
	}{
		"a program and a plugin": {plugin, []string{"sleep", "1"}, "use a kubeconfig with a token or a certificate"},
		"a plugin":               {plugin, nil, ""},
		"a program and a token":  {"{token: t}", []string{"sleep", "1"}, ""},
	} {
		file := filepath.Join(t.TempDir(), "kubeconfig")
		if err := os.WriteFile(file, []byte(`apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: `+row.user+`}]
`), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := config(flags{kubeconfig: file, command: row.command})
		if row.err == "" && err != nil || row.err != "" && (err == nil || !strings.Contains(err.Error(), row.err)) {
			t.Errorf("%s: err = %v, want %q", name, err, row.err)
		}
	}
}

// A gate that does nothing but serve must fail when it can serve no more.
func TestHowAGateWithoutAProgramEnds(t *testing.T) {
	for name, row := range map[string]struct {
		happens func(listener net.Listener, signals chan<- os.Signal)
		code    int
	}{
		"it can serve no more": {func(listener net.Listener, _ chan<- os.Signal) { _ = listener.Close() }, command.Failed},
		"it gets SIGTERM":      {func(_ net.Listener, signals chan<- os.Signal) { signals <- syscall.SIGTERM }, 0},
		"it gets SIGINT after another signal": {func(_ net.Listener, signals chan<- os.Signal) {
			signals <- syscall.SIGHUP
			signals <- syscall.SIGINT
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var logged strings.Builder
			failed := serve(listener, http.NotFoundHandler(), funcr.New(func(_, args string) {
				logged.WriteString(args)
			}, funcr.Options{}))
			signals := make(chan os.Signal, 2)
			row.happens(listener, signals)
			code, err := wait(signals, failed)
			if code != row.code || (err != nil) != (code != 0) {
				t.Errorf("it ends with %d, %v; want %d", code, err, row.code)
			}
			if code == 0 { // it serves on
				_ = listener.Close()
				<-failed
			}
			if text := logged.String(); !strings.Contains(text, "served no more") ||
				!strings.Contains(text, listener.Addr().String()) {
				t.Errorf("the log has %s", text)
			}
		})
	}
}

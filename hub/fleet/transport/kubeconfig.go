package transport

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	// MaxKubeconfig bounds a kubeconfig, in bytes. Those of real clusters have a few KiB. A bundle of CAs may add some
	// more.
	MaxKubeconfig = 64 << 10
	// maxMarks bounds the characters that begin or divide keys and entries. So it bounds how many there are, and how
	// deep: a few bytes each become hundreds in memory.
	maxMarks = 4 << 10
	marks    = "-,:?[{"
	// MaxToken bounds a bearer token, in bytes. Each request carries it.
	MaxToken = 16 << 10
)

// anchor matches all that a YAML parser may take for an anchor. An alias repeats what its anchor names: 33 KiB became
// 2 GiB. Where there is no anchor, there is no alias. Behind a letter or digit an & goes on with a word. It looks at
// bytes and not at what a parser finds, because two parsers may differ.
var anchor = regexp.MustCompile(`(?:^|[^0-9A-Za-z])&`)

// parsing is held while a kubeconfig is parsed, because that takes much more memory than its text: not all do at once.
var parsing sync.Mutex

// Access is the part of a kubeconfig that the hub uses: where the API server is, how it proves that it is the
// one, and how the hub proves its own identity.
type Access struct {
	endpoint
	// Local: the API server may be on the hub's own machine or network link.
	Local bool
	token string
	// server, roots and pair are address, ca, and cert with key, parsed once: it takes long for large keys. The last two
	// may be nil.
	server *url.URL
	roots  *x509.CertPool
	pair   *tls.Certificate
}

// endpoint is what makes one connection differ from another one.
type endpoint struct {
	address string
	// serverName is the name expected in the server's certificate; that of the URL if empty.
	serverName string
	// ca are the PEM certificates to trust; those of the system if empty.
	ca string
	// cert and key are a client certificate in PEM, both or none.
	cert, key string
}

// sameConnection reports whether both can use one connection, which does not know tokens.
func (a Access) sameConnection(b Access) bool { return a.endpoint == b.endpoint && a.Local == b.Local }

// Equal reports whether both are the same.
func (a Access) Equal(b Access) bool { return a.token == b.token && a.sameConnection(b) }

// ParseKubeconfig reads a kubeconfig that somebody else wrote. Kubeconfigs can make their reader run
// programs, read files, use proxies and act as other users. All that is refused here. The current context
// counts. Entries that it does not use may hold anything. Errors say what is wrong and repeat nothing of the
// content.
func ParseKubeconfig(data []byte) (Access, error) {
	if len(data) == 0 {
		return Access{}, errors.New("the kubeconfig is empty")
	}
	if err := refuseBombs(data); err != nil {
		return Access{}, err
	}
	parsing.Lock()
	defer parsing.Unlock()
	config, err := clientcmd.Load(data)
	if err != nil {
		// The error may quote the content.
		return Access{}, errors.New("the kubeconfig is no v1 Config in YAML or JSON")
	}
	cluster, user, err := current(config)
	if err != nil {
		return Access{}, err
	}
	if err := refuseCluster(cluster); err != nil {
		return Access{}, err
	}
	if err := refuseUser(user); err != nil {
		return Access{}, err
	}
	a := Access{token: strings.TrimSpace(user.Token), endpoint: endpoint{
		address:    cluster.Server,
		serverName: cluster.TLSServerName,
		ca:         string(cluster.CertificateAuthorityData),
		cert:       string(user.ClientCertificateData),
		key:        string(user.ClientKeyData),
	}}
	if a.server, err = parseServer(cluster.Server); err != nil {
		return Access{}, err
	}
	if err := a.validate(); err != nil {
		return Access{}, err
	}
	return a.parseKeys()
}

// refuseBombs refuses what would take much memory or time to parse.
func refuseBombs(data []byte) error {
	n := 0
	for _, c := range []byte(marks) {
		n += bytes.Count(data, []byte{c})
	}
	switch {
	case len(data) > MaxKubeconfig:
		return fmt.Errorf("the kubeconfig has %d bytes: at most %d are read", len(data), MaxKubeconfig)
	case n > maxMarks:
		return fmt.Errorf("the kubeconfig has %d of the characters %s: at most %d are read; leave out what is not current",
			n, marks, maxMarks)
	case anchor.Match(data):
		return errors.New("the kubeconfig has an & that may be a YAML anchor, which is refused: " +
			"write out what it stands for, or leave the & out")
	}
	return nil
}

func current(config *clientcmdapi.Config) (*clientcmdapi.Cluster, *clientcmdapi.AuthInfo, error) {
	if config.CurrentContext == "" {
		return nil, nil, errors.New("the kubeconfig has no current-context")
	}
	context := config.Contexts[config.CurrentContext]
	if context == nil {
		return nil, nil, errors.New("the kubeconfig has no context of the name in current-context")
	}
	cluster := config.Clusters[context.Cluster]
	if cluster == nil {
		return nil, nil, errors.New("the kubeconfig has no cluster of the name in the current context")
	}
	user := config.AuthInfos[context.AuthInfo]
	if user == nil {
		return nil, nil, errors.New("the kubeconfig has no user of the name in the current context")
	}
	return cluster, user, nil
}

func refuseCluster(c *clientcmdapi.Cluster) error {
	switch {
	case c.InsecureSkipTLSVerify:
		return errors.New("insecure-skip-tls-verify is refused: the hub would send its credentials to anyone; " +
			"give certificate-authority-data")
	case c.CertificateAuthority != "":
		return errors.New("certificate-authority names a file, which is refused; give certificate-authority-data")
	case c.ProxyURL != "":
		return errors.New("proxy-url is refused: the hub connects directly, or through the proxy of its own environment")
	}
	return nil
}

func refuseUser(u *clientcmdapi.AuthInfo) error {
	switch {
	case u.Exec != nil:
		return errors.New("exec is refused: the hub runs no programs; give a client certificate or a token")
	case u.AuthProvider != nil:
		return errors.New("auth-provider is refused; give a client certificate or a token")
	case u.TokenFile != "":
		return errors.New("tokenFile names a file, which is refused; give token")
	case u.ClientCertificate != "":
		return errors.New("client-certificate names a file, which is refused; give client-certificate-data")
	case u.ClientKey != "":
		return errors.New("client-key names a file, which is refused; give client-key-data")
	case u.Username != "" || u.Password != "":
		return errors.New("username and password are refused: API servers do not take them; " +
			"give a client certificate or a token")
	case u.Impersonate != "" || u.ImpersonateUID != "" || len(u.ImpersonateGroups) > 0 || len(u.ImpersonateUserExtra) > 0:
		return errors.New("impersonation (as, as-uid, as-groups, as-user-extra) is refused; " +
			"give the credentials of the user that the hub shall be")
	}
	return nil
}

func parseServer(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Opaque != "":
		return nil, errors.New("server is no URL")
	case u.Scheme != "https":
		return nil, errors.New("server must be an https URL")
	case u.Hostname() == "":
		return nil, errors.New("server names no host")
	case u.User != nil:
		return nil, errors.New("server must not hold a user or password")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, errors.New("server must not hold a query or fragment")
	case strings.Contains(u.Path, ".."):
		return nil, errors.New("the path of server must not hold \"..\"")
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
	return u, nil
}

// validate finds what a connection would fail on later, with a worse message.
func (a Access) validate() error {
	switch {
	case (a.cert == "") != (a.key == ""):
		return errors.New("client-certificate-data and client-key-data must come together")
	case a.cert == "" && a.token == "":
		return errors.New("the user has no credentials: give a client certificate or a token")
	case len(a.token) > MaxToken:
		return fmt.Errorf("token has %d bytes: at most %d are sent", len(a.token), MaxToken)
	}
	if !isPrintable(a.token) {
		return errors.New("token holds a character that no token has")
	}
	return nil
}

// Expires returns when the client certificate expires, or zero for a token: those that expire are replaced often.
func (a Access) Expires() (at time.Time) {
	if a.pair != nil {
		at = a.pair.Leaf.NotAfter
	}
	return at
}

// isPrintable reports whether a text has printable ASCII characters only, and no space.
func isPrintable(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c > '~' })
}

// parseKeys returns the access with its certificates and its key parsed.
func (a Access) parseKeys() (Access, error) {
	var err error
	if a.roots, err = parseCA(a.ca); err != nil {
		return Access{}, err
	}
	if a.pair, err = parsePair(a.cert, a.key); err != nil {
		return Access{}, err
	}
	return a, nil
}

func (a Access) tlsConfig() *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: a.serverName, RootCAs: a.roots}
	if a.pair != nil {
		c.Certificates = []tls.Certificate{*a.pair}
	}
	return c
}

package transport

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// secretText stands for what must never be shown.
const secretText = "s3cret-d0-n0t-show"

// selfSigned makes a certificate and its key in PEM.
func selfSigned(t testing.TB) (cert, key []byte) {
	t.Helper()
	private := musttest.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "test"},
		NotAfter:     time.Now().Add(time.Hour),
		IsCA:         true, BasicConstraintsValid: true,
	}
	der := musttest.Get(x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private))(t)
	der8 := musttest.Get(x509.MarshalPKCS8PrivateKey(private))(t)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der8})
}

// kubeFile is a kubeconfig with its current cluster and user.
type kubeFile struct {
	clientcmdapi.Config
	cluster *clientcmdapi.Cluster
	user    *clientcmdapi.AuthInfo
}

func kubeconfig(t testing.TB, change func(*kubeFile)) []byte {
	t.Helper()
	k := &kubeFile{
		cluster: &clientcmdapi.Cluster{Server: "https://10.0.0.1:6443"},
		user:    &clientcmdapi.AuthInfo{Token: secretText},
	}
	k.Config = clientcmdapi.Config{
		CurrentContext: "x",
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		Clusters:       map[string]*clientcmdapi.Cluster{"c": k.cluster},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": k.user},
	}
	if change != nil {
		change(k)
	}
	data := musttest.Get(clientcmd.Write(k.Config))(t)
	return data
}

func TestParseKubeconfig(t *testing.T) {
	cert, key := selfSigned(t)
	_, otherKey := selfSigned(t)
	program := &clientcmdapi.ExecConfig{
		Command:         "sh",
		APIVersion:      "client.authentication.k8s.io/v1",
		InteractiveMode: "Never",
	}
	for name, tc := range map[string]struct {
		change  func(*kubeFile)
		wantErr string
	}{
		"a token":                       {nil, ""},
		"a token that ends in newlines": {func(k *kubeFile) { k.user.Token += "\n" }, ""},
		"a client certificate": {func(k *kubeFile) {
			k.user.Token, k.user.ClientCertificateData, k.user.ClientKeyData = "", cert, key
		}, ""},
		"a CA, a path and a server name": {func(k *kubeFile) {
			k.cluster.Server = "https://proxy.example/k8s/clusters/c-1/"
			k.cluster.CertificateAuthorityData = cert
			k.cluster.TLSServerName = "kubernetes"
		}, ""},
		"entries that are not current may hold anything": {func(k *kubeFile) {
			k.AuthInfos["other"] = &clientcmdapi.AuthInfo{Exec: program}
		}, ""},

		"no current context":    {func(k *kubeFile) { k.CurrentContext = "" }, "no current-context"},
		"a context that is not": {func(k *kubeFile) { k.CurrentContext = "y" }, "no context of the name"},
		"a cluster that is not": {func(k *kubeFile) { delete(k.Clusters, "c") }, "no cluster of the name"},
		"a user that is not":    {func(k *kubeFile) { delete(k.AuthInfos, "u") }, "no user of the name"},
		"no TLS":                {func(k *kubeFile) { k.cluster.Server = "http://10.0.0.1" }, "https"},
		"no scheme":             {func(k *kubeFile) { k.cluster.Server = "10.0.0.1:6443" }, "server is no URL"},
		"no server":             {func(k *kubeFile) { k.cluster.Server = "" }, "https"},
		"no host":               {func(k *kubeFile) { k.cluster.Server = "https://:6443" }, "no host"},
		"a password in the URL": {
			change:  func(k *kubeFile) { k.cluster.Server = "https://u:" + secretText + "@h" },
			wantErr: "user or password",
		},
		"a query in the URL":   {func(k *kubeFile) { k.cluster.Server = "https://h/?a=" + secretText }, "query"},
		"a path that climbs":   {func(k *kubeFile) { k.cluster.Server = "https://h/a/../b" }, "path"},
		"a URL that is none":   {func(k *kubeFile) { k.cluster.Server = "https://[" + secretText }, "server is no URL"},
		"skipped verification": {func(k *kubeFile) { k.cluster.InsecureSkipTLSVerify = true }, "insecure-skip-tls-verify"},
		"a CA file": {
			change:  func(k *kubeFile) { k.cluster.CertificateAuthority = "/etc/passwd" },
			wantErr: "certificate-authority names a file",
		},
		"a CA that is none": {func(k *kubeFile) {
			k.cluster.CertificateAuthorityData = []byte(secretText)
		}, "certificate-authority-data"},
		"a proxy": {func(k *kubeFile) { k.cluster.ProxyURL = "http://h" }, "proxy-url"},
		"a program": {func(k *kubeFile) {
			k.user.Exec = program
		}, "exec"},
		"an auth provider": {func(k *kubeFile) {
			k.user.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "oidc"}
		}, "auth-provider"},
		"a token file": {func(k *kubeFile) { k.user.TokenFile = "/etc/passwd" }, "tokenFile"},
		"a certificate file": {
			change:  func(k *kubeFile) { k.user.ClientCertificate = "/etc/passwd" },
			wantErr: "client-certificate names a file",
		},
		"a key file": {func(k *kubeFile) { k.user.ClientKey = "/etc/passwd" }, "client-key names a file"},
		"a password": {
			change:  func(k *kubeFile) { k.user.Username, k.user.Password = "u", secretText },
			wantErr: "username and password",
		},
		"another user":          {func(k *kubeFile) { k.user.Impersonate = "admin" }, "impersonation"},
		"another user's groups": {func(k *kubeFile) { k.user.ImpersonateGroups = []string{"g"} }, "impersonation"},
		"another user's extra": {func(k *kubeFile) {
			k.user.ImpersonateUserExtra = map[string][]string{"a": nil}
		}, "impersonation"},
		"the longest token": {func(k *kubeFile) { k.user.Token = strings.Repeat("t", MaxToken) }, ""},
		"a longer token": {func(k *kubeFile) {
			k.user.Token = secretText + strings.Repeat("t", MaxToken)
		}, "token has 16402 bytes: at most 16384"},
		"no credentials":         {func(k *kubeFile) { k.user.Token = "" }, "no credentials"},
		"a token with a newline": {func(k *kubeFile) { k.user.Token += "\r\nHost: x" }, "token holds"},
		"a certificate alone":    {func(k *kubeFile) { k.user.ClientCertificateData = cert }, "together"},
		"a key alone":            {func(k *kubeFile) { k.user.ClientKeyData = key }, "together"},
		"a key of another": {func(k *kubeFile) {
			k.user.ClientCertificateData, k.user.ClientKeyData = cert, otherKey
		}, "no PEM certificate with its key"},
		"a certificate that is none": {func(k *kubeFile) {
			k.user.ClientCertificateData, k.user.ClientKeyData = []byte(secretText), []byte(secretText)
		}, "no PEM certificate with its key"},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := ParseKubeconfig(kubeconfig(t, tc.change))
			checkError(t, err, tc.wantErr)
			if err == nil && a.server.Scheme != "https" {
				t.Errorf("server = %v", a.server)
			}
		})
	}
}

func TestAccessExpiresWithItsCertificate(t *testing.T) {
	cert, key := selfSigned(t)
	began := time.Now()
	withCertificate := func(k *kubeFile) {
		k.user.Token, k.user.ClientCertificateData, k.user.ClientKeyData = "", cert, key
	}
	a, err := ParseKubeconfig(kubeconfig(t, withCertificate))
	if left := a.Expires().Sub(began); err != nil || left < 58*time.Minute || left > time.Hour {
		t.Errorf("it expires in %v, not in an hour: %v", left, err)
	}
	if a, err := ParseKubeconfig(kubeconfig(t, nil)); err != nil || !a.Expires().IsZero() {
		t.Errorf("a token expires at %v: %v", a.Expires(), err)
	}
}

// A tenant writes the text. So what it takes to refuse it is bounded, too.
func TestHowMuchMemoryAKubeconfigTakesThatIsRefused(t *testing.T) {
	const begin = "apiVersion: v1\nkind: Config\n"
	const most, mostOfAliases = 16 << 20, 4 << 20 // bytes
	long := strings.Repeat("x", 16<<10)
	for name, tc := range map[string]struct{ data, wantErr string }{
		"nothing":        {"", "empty"},
		"a secret":       {secretText, "no v1 Config"},
		"another object": {"apiVersion: v1\nkind: " + secretText, "no v1 Config"},
		"a wrong type":   {begin + "clusters: " + secretText, "no v1 Config"},
		"bad base64": {
			data:    begin + "clusters: [{name: c, cluster: {certificate-authority-data: '" + secretText + "'}}]",
			wantErr: "no v1 Config",
		},
		"too much":        {strings.Repeat("#", MaxKubeconfig+1), "at most"},
		"an empty object": {"{}", "current-context"},
		"null everywhere": {begin + "current-context: x\ncontexts: [{name: x, context: null}]", "no cluster"},
		"aliases to a long string": {
			data:    begin + "extensions:\n- name: &a " + long + "\n  extension: [" + strings.Repeat("*a,", maxMarks-10) + "]\n",
			wantErr: "YAML anchor",
		},
		"aliases that grow":  {aliases(), "YAML anchor"},
		"an alias in JSON":   {`{"a": &a "` + secretText + `", "b": *a}`, "YAML anchor"},
		"an alias in a key":  {"&a " + secretText + ": x", "YAML anchor"},
		"an & in a word":     {"current-context: R&D", "no context of the name"},
		"too deep a list":    {strings.Repeat("[", maxMarks+1), "at most 4096"},
		"too deep a block":   {strings.Repeat("- ", maxMarks+1), "at most 4096"},
		"too deep an object": {strings.Repeat("? ", maxMarks+1), "at most 4096"},
		"too many entries":   {"users: [" + strings.Repeat("{},", maxMarks/2) + "]", "at most 4096"},
		"too many keys":      {strings.Repeat("a:\n", maxMarks+1), "at most 4096"},

		"the deepest list that is parsed":  {begin + "extensions: [" + strings.Repeat("[", maxMarks-4) + "]", "no v1 Config"},
		"the deepest block that is parsed": {strings.Repeat("- ", maxMarks), "no v1 Config"},
		"the most users that are parsed":   {begin + "users:\n" + strings.Repeat("-\n", maxMarks-3), "no v1 Config"},
		"what JSON escapes": {
			begin + "current-context: " + strings.Repeat("<", MaxKubeconfig-100), "no context of the name",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			took := allocated(func() { _, err = ParseKubeconfig([]byte(tc.data)) })
			checkError(t, err, tc.wantErr)
			if took > most || strings.Contains(name, "alias") && took > mostOfAliases {
				t.Errorf("it took %d KiB", took>>10)
			}
		})
	}
}

// aliases is the document that takes all memory of a naive parser.
func aliases() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 10; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 10), ","))
	}
	return b.String()
}

func checkError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("unexpected error: %v", err)
	case want != "" && err == nil:
		t.Errorf("no error, want %q", want)
	case want != "" && !strings.Contains(err.Error(), want):
		t.Errorf("error %q, want %q", err, want)
	}
	if err != nil && strings.Contains(err.Error(), secretText) {
		t.Errorf("the error shows a secret: %v", err)
	}
}

// FuzzKubeconfig: whatever comes out of untrusted bytes uses https, holds credentials, and names no file.
func FuzzKubeconfig(f *testing.F) {
	cert, key := selfSigned(f)
	f.Add(kubeconfig(f, nil))
	f.Add(kubeconfig(f, func(k *kubeFile) {
		k.cluster.CertificateAuthorityData, k.user.ClientCertificateData, k.user.ClientKeyData = cert, cert, key
	}))
	f.Add([]byte("apiVersion: v1\nkind: Config\ncurrent-context: x\n" +
		"contexts: [{name: x, context: {cluster: c, user: u}}]\n" +
		"clusters: [{name: c, cluster: {server: 'https://h/%2e%2e'}}]\nusers: [{name: u, user: {token: t}}]"))
	f.Add([]byte(aliases()))
	f.Add([]byte("&a b: *a"))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := ParseKubeconfig(data)
		if err != nil {
			if len(err.Error()) > maxMessage {
				t.Errorf("the error is long: %v", err)
			}
			return
		}
		if a.server.Scheme != "https" || a.server.Host == "" || a.server.User != nil || a.server.RawQuery != "" {
			t.Errorf("server = %#v", a.server)
		}
		if a.token == "" && a.cert == "" {
			t.Error("no credentials")
		}
		if len(a.token) > MaxToken || (a.cert == "") != (a.pair == nil) || (a.ca == "") != (a.roots == nil) {
			t.Errorf("%d bytes of token, certificate %v, roots %v", len(a.token), a.pair != nil, a.roots != nil)
		}
	})
}

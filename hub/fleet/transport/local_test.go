package transport

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/leasecast/leasecast/e2e/must/musttest"
)

func TestWhichAddressesAreDialled(t *testing.T) {
	for name, test := range map[string]struct {
		address string
		want    bool
	}{
		"that of another machine":                  {"192.0.2.1:443", true},
		"that of a private network":                {"10.0.0.1:6443", true},
		"that of another machine, by IPv6":         {"[2001:db8::1]:443", true},
		"that of a private network, by IPv6":       {"[fd00::1]:443", true},
		"not loopback":                             {"127.0.0.1:443", false},
		"nor all of it":                            {"127.8.8.8:443", false},
		"nor by IPv6":                              {"[::1]:443", false},
		"nor as IPv4 in IPv6":                      {"[::ffff:127.0.0.1]:443", false},
		"not the link, as of a cloud's metadata":   {"169.254.169.254:80", false},
		"nor by IPv6, with a zone":                 {"[fe80::1%eth0]:443", false},
		"not the address that stands for any here": {"0.0.0.0:443", false},
		"nor as IPv4 in IPv6 that stands for any":  {"[::ffff:0.0.0.0]:443", false},
		"not a group":                              {"224.0.0.1:443", false},
		"not the metadata of AWS, by IPv6":         {"[fd00:ec2::254]:443", false},
		"nor the metadata of AWS, with a zone":     {"[fd00:ec2::254%eth0]:443", false},
		"not the wire server of Azure":             {"168.63.129.16:443", false},
		"nor it as IPv4 in IPv6":                   {"[::ffff:168.63.129.16]:443", false},
		"not the metadata of Alibaba Cloud":        {"100.100.100.200:443", false},
		"not what is no address":                   {"localhost:443", false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := refuseLocal(context.Background(), "tcp", test.address, nil); (err == nil) != test.want {
				t.Errorf("%v", err)
			}
		})
	}
}

// A name is judged by what it stands for.
func TestANameOfThisMachineIsNotDialled(t *testing.T) {
	reached := false
	s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer s.Close()
	for _, host := range []string{"localhost", "127.0.0.1"} {
		url := strings.Replace(s.URL, "127.0.0.1", host, 1)
		server := musttest.Get(parseServer(url))(t)
		target := NewTarget(Access{server: server, token: "a-token-that-is-long-enough"}, nil)
		_, err := identify(t.Context(), target)
		if err == nil || !strings.Contains(err.Error(), "--allow-local-addresses") || reached {
			t.Errorf("%s: %v; reached: %v", host, err, reached)
		}
		target.Close()
	}
}

package cases

import "testing"

// A token is sent to an address of this machine only: its certificate is not checked.
func TestHubAddressIsOfThisMachine(t *testing.T) {
	for address, accepted := range map[string]bool{
		"127.0.0.1:8443": true, "[::1]:8443": true, "10.0.0.1:8443": false, "localhost:8443": false, "127.0.0.1": false,
		"example.org:443": false,
	} {
		if _, _, err := (Hub{Address: address}).reach(t.Context(), nil); (err == nil) != accepted {
			t.Errorf("%s: %v", address, err)
		}
	}
}

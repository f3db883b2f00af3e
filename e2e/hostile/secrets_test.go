package hostile

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// echoed stands in what the hostile member says beside the secrets, so that it is seen where that was shown.
const echoed = "this is what you said"

// TestNoSecretIsShown has the hostile member echo the hub's secrets wherever it can, and looks for them in all output.
func TestNoSecretIsShown(t *testing.T) {
	s := shared
	s.restart(t)
	secrets := s.secrets(t) // only read from here on: the front's goroutines read it too
	var tokens sync.Map     // which the hub used
	s.front.Play(func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		tokens.Store(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), true)
		echoAll(w, r, secrets)
	})
	defer s.front.Play(nil)
	s.Eventually(t, patience, "what the hostile member says is shown and logged", func(ctx context.Context) error {
		c, err := s.Candidate(ctx, shop, far)
		if err == nil && !strings.Contains(c.Message, echoed) {
			err = fmt.Errorf("it is shown as %s: %s", c.Reason, c.Message)
		}
		logs := map[string]string{}
		if err = errors.Join(err, s.logged(logs)); err == nil && !slices.ContainsFunc(slices.Collect(maps.Values(logs)),
			func(text string) bool { return strings.Contains(text, echoed) }) {
			err = errors.New("no log has it")
		}
		return err
	})
	shown := s.shown(t)
	hidden := maps.Clone(secrets)
	tokens.Range(func(said, _ any) bool {
		if used, ok := said.(string); ok && used != "" {
			hidden["a token that the hub used: "+used[:4]] = used
		}
		return true
	})
	for place, text := range shown {
		for name, secret := range hidden {
			if strings.Contains(text, secret) {
				t.Errorf("%s: %s is shown", place, name)
			}
		}
		if strings.Contains(text, "\x1b") || strings.Contains(text, `\u001b[`) {
			t.Errorf("%s: a control character is shown", place)
		}
	}
	logs, metrics := "", ""
	for place, text := range shown {
		if strings.HasPrefix(place, logOf) {
			logs += text
		}
		if strings.HasPrefix(place, metricsOf) {
			metrics += text
		}
	}
	if strings.Contains(metrics, echoed) {
		t.Error("the metrics show what a member said")
	}
	if !strings.Contains(metrics, `member="`+far+`"`) {
		t.Error("the metrics show nothing of the hostile member, so nothing was tested")
	}
	for place, text := range map[string]string{"the records": shown["records"], "the logs": logs} {
		if !strings.Contains(text, echoed) {
			t.Errorf("%s show nothing that the member said, so nothing was tested", place)
		}
	}
}

// logOf begins the places that are logs, metricsOf those that are metrics.
const (
	logOf     = "the log of "
	metricsOf = "the metrics at "
)

// secrets are what nobody may read, by what they are.
func (s *testbed) secrets(t *testing.T) map[string]string {
	t.Helper()
	get := func(name, key string) []byte {
		var secret corev1.Secret
		musttest.Do(t, s.Hub.Get(t.Context(), client.ObjectKey{Namespace: harness.FleetNamespace, Name: name}, &secret))
		if len(secret.Data[key]) == 0 {
			t.Fatalf("Secret %s has no %s", name, key)
		}
		return secret.Data[key]
	}
	kubeconfig := get(far+"-kubeconfig", "value")
	honest, err := clientcmd.Load(get("east-kubeconfig", "value"))
	musttest.Do(t, err)
	administrator := honest.AuthInfos[honest.Contexts[honest.CurrentContext].AuthInfo]
	if len(administrator.ClientKeyData) == 0 {
		t.Fatal("the kubeconfig of an honest member has no key")
	}
	return map[string]string{
		"an administrator's key":           strings.Split(string(administrator.ClientKeyData), "\n")[1],
		"an administrator's key in base64": base64.StdEncoding.EncodeToString(administrator.ClientKeyData),
		"the seal's key in hex":            hex.EncodeToString(get(sealName, "key")),
		"the token":                        token,
		"the token in base64":              base64.StdEncoding.EncodeToString([]byte(token)),
		"the seal's key":                   base64.StdEncoding.EncodeToString(get(sealName, "key")),
		"the kubeconfig in base64":         base64.StdEncoding.EncodeToString(kubeconfig),
	}
}

// echoAll sends the token back in every header and body that clients read. What the hub never sent, no member can know.
func echoAll(w http.ResponseWriter, r *http.Request, secrets map[string]string) {
	said := fmt.Sprintf("%s: \u001b[31m%s and %s", echoed, r.Header.Get("Authorization"), secrets["the token"])
	for _, header := range []string{
		"Warning", "Www-Authenticate", "Retry-After", "Location", "Audit-Id", "X-Kubernetes-Pf-Flowschema-Uid",
	} {
		w.Header().Set(header, strings.ReplaceAll(said, "\u001b", ""))
	}
	status := map[string]any{
		"kind":       "Status",
		"apiVersion": "v1",
		"status":     "Failure",
		"reason":     "Forbidden",
		"code":       http.StatusForbidden,
		"message":    said,
		"details": map[string]any{
			"name":   said,
			"kind":   said,
			"group":  said,
			"causes": []any{map[string]any{"message": said, "reason": said, "field": said}},
		},
	}
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("watch") != "" {
		_ = json.NewEncoder(w).Encode(map[string]any{"type": "ERROR", "object": status})
		return
	}
	w.WriteHeader(http.StatusForbidden)
	_ = json.NewEncoder(w).Encode(status)
}

// shown is all that people read, by place.
func (s *testbed) shown(t *testing.T) map[string]string {
	t.Helper()
	shown := map[string]string{}
	for place, list := range map[string]client.ObjectList{
		"events": &eventsv1.EventList{}, "records": &v1alpha1.NamespaceLeaderList{},
		"policies": &v1alpha1.LeadershipPolicyList{}, "Clusters": &clusterv1.ClusterList{},
	} {
		musttest.Do(t, s.Hub.List(t.Context(), list))
		text, err := json.Marshal(list)
		musttest.Do(t, err)
		shown[place] = string(text)
	}
	musttest.Do(t, s.logged(shown))
	token := musttest.Get(s.Scraper(t.Context()))(t)
	for _, address := range s.metrics {
		text, err := harness.Scrape(t.Context(), address, token)
		musttest.Do(t, err)
		if !strings.Contains(text, "leasecast_build_info") {
			t.Errorf("the hub at %s has no metrics", address)
		}
		shown[metricsOf+address] = text
	}
	return shown
}

// logged adds the logs of all replicas to what is shown.
func (s *testbed) logged(shown map[string]string) error {
	for _, p := range s.Hubs() {
		text, err := os.ReadFile(p.Log())
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		shown[logOf+p.Name()] = string(text)
	}
	return nil
}

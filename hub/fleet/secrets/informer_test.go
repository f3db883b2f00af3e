package secrets

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// pagedServer is an API server that does not stream lists. It answers three pages of one Secret each.
func pagedServer(t *testing.T, listed func(limit, version string)) *rest.Config {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Get("sendInitialEvents") != "" {
			http.Error(w, "sendInitialEvents is forbidden for watch", http.StatusUnprocessableEntity)
			return
		}
		if q.Get("watch") != "" {
			<-r.Context().Done()
			return
		}
		listed(q.Get("limit"), q.Get("resourceVersion"))
		n := len(q.Get("continue"))
		page := metav1.PartialObjectMetadataList{
			TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"},
			ListMeta: metav1.ListMeta{ResourceVersion: "9", Continue: "xx"[:min(2, n+1)]},
			Items: []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{
				Namespace: "a", Name: fmt.Sprintf("%d-kubeconfig", n), Labels: map[string]string{"large": "x"},
			}}},
		}
		if n == 2 {
			page.Continue = ""
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(page); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}

func TestAnAPIServerThatStreamsNoListIsReadByPages(t *testing.T) {
	var limits, versions []string
	client := musttest.Get(metadata.NewForConfig(pagedServer(t, func(limit, version string) {
		limits, versions = append(limits, limit), append(versions, version)
	})))(t)
	seen := 0
	reduce := func(full *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
		if seen++; len(limits) != seen { // each page has one Secret
			t.Errorf("%s is reduced after %d pages were read", full.Name, len(limits))
		}
		return reduced(full)
	}
	informer := musttest.Get(NewInformer(client, corev1.SchemeGroupVersion.WithResource("secrets"), "a", reduce, slim))(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); informer.RunWithContext(ctx) }()
	select {
	case <-informer.HasSyncedChecker().Done():
	case <-time.After(30 * time.Second):
		t.Error("the informer has not synced")
	}
	keys := informer.GetStore().ListKeys()
	cancel()
	<-ended
	slices.Sort(keys)
	if want := []string{"a/0-kubeconfig", "a/1-kubeconfig", "a/2-kubeconfig"}; !slices.Equal(keys, want) {
		t.Errorf("%v are kept, want %v", keys, want)
	}
	if want := []string{"20", "20", "20"}; !slices.Equal(limits, want) {
		t.Errorf("the limits of the pages are %v, want %v", limits, want)
	}
	if want := []string{"", "", ""}; !slices.Equal(versions, want) {
		t.Errorf("the pages have the versions %v, want none", versions)
	}
}

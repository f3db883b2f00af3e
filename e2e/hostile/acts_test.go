package hostile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/hostile/front"
	"github.com/leasecast/leasecast/e2e/hostile/worst"
)

const protobuf = "application/vnd.kubernetes.protobuf"

// endless has the watches of Namespaces and Leases show new ones without end.
func endless(w http.ResponseWriter, r *http.Request, honest http.Handler) {
	flood(w, r, honest, func(n int) (kind, name string) { return "ADDED", fmt.Sprintf("flood-%d", n) })
}

// repeating has them show the same one over and over.
func repeating(w http.ResponseWriter, r *http.Request, honest http.Handler) {
	flood(w, r, honest, func(n int) (kind, name string) {
		if n == 1 {
			return "ADDED", "flood"
		}
		return "MODIFIED", "flood"
	})
}

// flood has the watches of Namespaces and Leases show events without end.
func flood(w http.ResponseWriter, r *http.Request, honest http.Handler, next func(n int) (kind, name string)) {
	leases := front.IsWatch(r, "leases")
	if !leases && !front.IsWatch(r, "namespaces") {
		honest.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", protobuf+";stream=watch")
	for n := 1; r.Context().Err() == nil; n++ {
		kind, name := next(n)
		meta := metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), ResourceVersion: fmt.Sprint(1_000_000 + n)}
		var o interface{ Marshal() ([]byte, error) } = &corev1.Namespace{ObjectMeta: meta}
		of := corev1.SchemeGroupVersion.WithKind("Namespace")
		if leases {
			meta.Namespace, meta.Labels = shop, map[string]string{v1alpha1.ManagedLabel: "true"}
			o = &coordinationv1.Lease{ObjectMeta: meta}
			of = coordinationv1.SchemeGroupVersion.WithKind("Lease")
		}
		content, _ := o.Marshal() // plain data always marshals
		if _, err := w.Write(worst.Event(kind, of, content)); err != nil {
			return
		}
	}
}

// items answers each list of Namespaces with so many copies of an item, and refuses to stream one.
func items(of []byte, copies int) front.Act {
	item := append(binary.AppendUvarint([]byte{2<<3 | 2}, uint64(len(of))), of...)
	body := binary.AppendUvarint([]byte("k8s\x00\x0a\x13\x0a\x02v1\x12\x0dNamespaceList\x12"), uint64(len(item)*copies))
	part := bytes.Repeat(item, max(1, 1<<20/len(item)))
	return func(w http.ResponseWriter, r *http.Request, honest http.Handler) {
		switch {
		case haveListed(w, r):
		case front.IsList(r, "namespaces"):
			w.Header().Set("Content-Type", protobuf)
			_, _ = w.Write(body)
			for range copies * len(item) / len(part) {
				if _, err := w.Write(part); err != nil {
					return
				}
			}
		default:
			honest.ServeHTTP(w, r)
		}
	}
}

// named is a Namespace with a name of a megabyte, and nested one with 900,000 owners, which say nothing.
func named() []byte {
	raw, _ := namespaceNamed(strings.Repeat("n", 1<<20)).Marshal() // always marshals
	return raw
}

func nested() []byte {
	owners := bytes.Repeat([]byte{13<<3 | 2, 0}, 900_000)
	return append(binary.AppendUvarint([]byte{1<<3 | 2}, uint64(len(owners))), owners...)
}

// haveListed has informers list the Namespaces as they would on an older API server: no watch of them goes on, and none
// sends a list.
func haveListed(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case !front.IsWatch(r, "namespaces"):
		return false
	case r.URL.Query().Get("sendInitialEvents") == "":
		expired(w, r)
		return true
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusUnprocessableEntity)
	_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure",`+
		`"reason":"Invalid","code":422,"message":"sendInitialEvents is forbidden"}`)
	return true
}

// announced begins an event of 4 GB, and sends it for as long as anybody reads.
func announced(w http.ResponseWriter, r *http.Request, honest http.Handler) {
	if !front.IsWatch(r, "namespaces") {
		honest.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", protobuf+";stream=watch")
	_, _ = w.Write([]byte{0xff, 0xff, 0xff, 0xff})
	for part := make([]byte, 1<<20); ; {
		if _, err := w.Write(part); err != nil {
			return
		}
	}
}

// onWatches spoils the watches only.
func onWatches(answer func(http.ResponseWriter, *http.Request)) front.Act {
	return func(w http.ResponseWriter, r *http.Request, honest http.Handler) {
		if r.URL.Query().Get("watch") == "" {
			honest.ServeHTTP(w, r)
			return
		}
		answer(w, r)
	}
}

func expired(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", protobuf+";stream=watch")
	tooOld, _ := (&metav1.Status{
		Status:  metav1.StatusFailure,
		Reason:  metav1.StatusReasonExpired,
		Code:    http.StatusGone,
		Message: "too old",
	}).Marshal()
	_, _ = w.Write(worst.Event("ERROR", corev1.SchemeGroupVersion.WithKind("Status"), tooOld))
}

func silent(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", protobuf+";stream=watch")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush() // the hub may have hung up
	<-r.Context().Done()
}

func later(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
	w.Header().Set("Retry-After", "3600")
	w.WriteHeader(http.StatusTooManyRequests)
}

// slow answers everything with a byte each 100 ms.
func slow(w http.ResponseWriter, r *http.Request, _ http.Handler) {
	w.Header().Set("Content-Type", protobuf)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := io.WriteString(w, "k"); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush() // the hub may have hung up
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
}

// echo sends back what the hub sent.
func echo(w http.ResponseWriter, r *http.Request, _ http.Handler) {
	said := r.Header.Get("Authorization")
	w.Header().Set("Warning", `299 - "`+said+`"`)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusForbidden)
	_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure",`+
		`"reason":"Forbidden","code":403,"message":"you said \u001b[31m%s"}`, said)
}

func longHeader(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
	for n := range 100 {
		w.Header().Set(fmt.Sprintf("X-%d", n), strings.Repeat("x", 4<<10))
	}
	w.WriteHeader(http.StatusOK)
}

package sample

import (
	"net/http"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const jan2 = "Fri, 02 Jan 2026 00:00:00 GMT"

func TestWhoseDateAnAnswerCarries(t *testing.T) {
	for name, tc := range map[string]struct {
		code   int
		header http.Header
		want   bool
	}{
		"an answer":              {200, http.Header{"Date": {jan2}}, true},
		"a refusal":              {403, http.Header{"Date": {jan2}}, true},
		"an error of a gateway":  {502, http.Header{"Date": {jan2}}, false},
		"an answer of a cache":   {200, http.Header{"Date": {jan2}, "Age": {"3"}}, false},
		"none":                   {200, http.Header{}, false},
		"several":                {200, http.Header{"Date": {jan2, jan2}}, false},
		"something else instead": {200, http.Header{"Date": {"yesterday"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			date, ok := Date(tc.code, tc.header)
			if want := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC); ok != tc.want || ok && !date.Equal(want) {
				t.Errorf("%v, %v", date, ok)
			}
		})
	}
}

func TestWhenARenewalWasAdmitted(t *testing.T) {
	at := func(seconds int64) *metav1.Time { return ptr.To(metav1.NewTime(time.Unix(seconds, 0))) }
	entry := func(seconds int64, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Time: at(seconds), FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const renewed, labelled = `{"f:spec":{"f:renewTime":{}}}`, `{"f:metadata":{"f:labels":{}}}`
	for name, tc := range map[string]struct {
		fields []metav1.ManagedFieldsEntry
		want   int64
	}{
		"nobody noted it":           {nil, 0},
		"by the renewal":            {[]metav1.ManagedFieldsEntry{entry(5, renewed)}, 5},
		"not by what came later":    {[]metav1.ManagedFieldsEntry{entry(5, renewed), entry(9, labelled)}, 5},
		"by the latest renewal":     {[]metav1.ManagedFieldsEntry{entry(7, renewed), entry(5, renewed)}, 7},
		"not by one without a time": {[]metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(renewed)}}, 0},
		"not by one without fields": {[]metav1.ManagedFieldsEntry{{Time: at(5)}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := admitted(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ManagedFields: tc.fields}})
			if tc.want == 0 && !got.IsZero() || tc.want != 0 && got.Unix() != tc.want {
				t.Errorf("%v, want second %d", got, tc.want)
			}
		})
	}
}

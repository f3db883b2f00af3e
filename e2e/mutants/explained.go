package main

// explained says of generated mutants, by their names, why no test can tell them from the
// code. One that a test kills does not belong here, nor one that is not generated any more:
// both are errors.
var explained = map[string]string{
	"api/lease/seal.go Sealed: condition: strings.HasPrefix(seal, sealPrefix) dropped from &&":                                               "the whole seal is compared after it, and begins with the prefix",
	"api/lease/wire/registration.go WriteRegistration: error: return fmt.Errorf(\"registration %s/%s: %w\", l.Namespace, l.Name, err) → nil": "a map of strings and integers can always be written as JSON",
	"api/lease/wire/registration.go WriteRegistration: error: if err != nil dropped":                                                         "a map of strings and integers can always be written as JSON",
	"api/lease/wire/registration.go WriteRegistration: condition: !maps.Equal(read.Released, r.Released) dropped from ||":                    "releases that would be read as others are refused by the reading itself: a key that JSON changes is no namespace",
	"api/lease/wire/registration.go readRegistration: condition: l.Spec.RenewTime == nil dropped from ||":                                    "IsZero is true of nil",
	"api/lease/wire/registration.go readReleased: condition: err != nil dropped from ||":                                                     "with an error there is no token, which is no brace either",
	"api/lease/wire/registration.go readReleased: error: if err != nil dropped":                                                              "without a key the name is empty, and that is refused",
	"api/lease/wire/registration.go readReleased: swapped: err, io.EOF in errors.Is(err, io.EOF)":                                            "the decoder returns io.EOF itself, unwrapped",
	"hub/election/bound.go boundOf: boundary: own.After(b.wall) → or equal":                                                                  "equal instants are the same bound",
	"hub/election/moved.go moved: swapped: r, s.Record in same(r, s.Record)":                                                                 "same does not tell its arguments apart",
	"hub/election/next.go drain: boundary: r.Since.After(now.Wall) → or equal":                                                               "Since becomes now, which it is",
	"hub/election/next.go drain: swapped: r, s.Record in same(r, s.Record)":                                                                  "same does not tell its arguments apart",
	"hub/election/next.go drain: swapped: r, s.Record in same(r, s.Record) #2":                                                               "same does not tell its arguments apart",
	"hub/election/next.go elect: swapped: r, s.Record in same(r, s.Record)":                                                                  "same does not tell its arguments apart",
	"hub/election/next.go heir: condition: ok dropped from &&":                                                                               "who is not among the candidates is Unfit, and may not lead",
	"hub/election/next.go keep: boundary: until < wait → <=":                                                                                 "if both are equal it does not matter which counts",
	"hub/election/next.go keep: boundary: want > r.Duration → >=":                                                                            "an equal D is recorded as it is",
	"hub/election/next.go keep: condition: ok dropped from &&":                                                                               "who is not among the candidates is Unfit, and so not Unknown",
	"hub/election/next.go keep: condition: until < wait dropped from ||":                                                                     "the bound is never nearer than what a shorter D waits for, which is part of it",
	"hub/election/next.go keep: duration: wait → 0 #3":                                                                                       "the bound is never nearer than what a shorter D waits for, which is part of it",
	"hub/election/next.go keep: swapped: r, s.Record in same(r, s.Record)":                                                                   "same does not tell its arguments apart",
	"hub/election/next.go outlasting: duration: p.Timings.Duration → 0 #3":                                                                   "asked only when the record's D is longer, and then that counts",
	"hub/election/next.go resumes: condition: ok dropped from &&":                                                                            "who is not among the candidates does not answer",
	"hub/election/rank.go outranks: boundary: a.Name < b.Name → <=":                                                                          "no two candidates have one name",
	"hub/seal/seal.go Store.Raise: statement: defer cancel() dropped":                                                                        "the context ends with its deadline, a little later",
	"hub/seal/seal.go Store.read: statement: defer cancel() dropped":                                                                         "the context ends with its deadline, a little later",
	"hub/tenure/prompt.go prompt.wait: statement: defer timer.Stop() dropped":                                                                "a timer that nobody waits for only takes memory until it fires",
	"hub/tenure/tenure.go Tenure.Doubt: boundary: latest.After(t.inherited) → or equal":                                                      "equal instants are the same",
	"hub/tenure/tenure.go Tenure.MayStamp: condition: t.held dropped from &&":                                                                "before the election is won both deadlines are zero, and have passed",
	"hub/tenure/tenure.go Tenure.release: boundary: other.After(latest) → or equal":                                                          "equal instants are the same",
	"hub/tenure/tenure.go Tenure.release: duration: time.Microsecond → 0":                                                                    "a Lease stores microseconds, so that the rest is cut there",
}

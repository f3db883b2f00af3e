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
}

package mutate

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// module is a module of its own with one file, and with package chosen as this one has it.
func module(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	source := musttest.Get(os.ReadFile("../chosen/chosen.go"))(t)
	for path, content := range map[string]string{
		"go.mod":                           "module github.com/leasecast/leasecast\n\ngo 1.26\n",
		"e2e/mutants/chosen/chosen.go":     string(source),
		"subject/subject.go":               text,
		"subject/subject_internal_test.go": "package subject\n",
	} {
		path = filepath.Join(dir, path)
		musttest.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		musttest.Do(t, os.WriteFile(path, []byte(content), 0o600))
	}
	return dir
}

// changes returns what is generated for the body of a function, without the name of the function.
func changes(t *testing.T, imports, body string) []string {
	t.Helper()
	dir := module(t, "package subject\n"+imports+"\n"+body+"\n")
	made := musttest.Get(Make(t.Context(), dir, "./subject"))(t)
	var all []string
	for _, m := range made.All {
		_, change, _ := strings.Cut(m.Name, ": ")
		all = append(all, change)
	}
	return all
}

func TestOperators(t *testing.T) {
	const withTime, withErrors, withSync = `import "time"`, `import "errors"`, `import "sync"`
	for name, tc := range map[string]struct {
		imports, code string
		want          []string
	}{
		"a comparison is inverted": {code: "func f(a, b int) bool { return a == b }",
			want: []string{"comparison: a == b → !="}},
		"one with a boundary is moved by it, too": {code: "func f(a, b int) bool { return a < b }",
			want: []string{"comparison: a < b → >=", "boundary: a < b → <="}},
		"times are compared by their methods": {withTime, "func f(a, b time.Time) bool { return a.Before(b) }",
			[]string{"comparison: !a.Before(b)", "boundary: a.Before(b) → or equal"}},
		"and may stand behind a not": {withTime, "func f(a, b time.Time) bool { return !a.After(b) }",
			[]string{"comparison: !a.After(b)", "boundary: a.After(b) → or equal"}},
		"an operand decides nothing, or is negated": {code: "func f(a, b bool) bool { return a && !b }",
			want: []string{"negation: a", "condition: a dropped from &&", "negation: !b", "condition: !b dropped from &&"}},
		"a branch is not entered": {code: "func f(a bool) { if a { g() } }\nfunc g() {}",
			want: []string{"branch: if a dropped", "negation: a", "statement: g() dropped"}},
		"a case is not entered": {code: "func f(a bool) int { switch { case a: return 1 }; return 0 }",
			want: []string{"branch: case a dropped", "negation: a",
				"constant: 1 → +1 in return 1", "constant: 1 → -1 in return 1", "constant: 0 → +1 in return 0"}},
		"a case of values stays": {code: "func f(a string) { switch a { case \"b\": } }"},
		"statements are dropped": {code: "func f(c chan bool, s *struct{ n int }) { s.n++; s.n = len(c); c <- s.n > 0; " +
			"defer close(c); go func() {}() }",
			want: []string{"statement: s.n++ dropped", "statement: s.n = len(c) dropped", "statement: c <- s.n > 0 dropped",
				"comparison: s.n > 0 → <=", "boundary: s.n > 0 → >=", "statement: defer close(c) dropped",
				"statement: go func() {}() dropped"}},
		"a loop goes on": {code: "func f() { for { break } }",
			want: []string{"statement: break dropped"}},
		"what declares stays, and what selects": {code: "func f(c chan bool) { select { case c <- true: default: } }"},
		"locks stay": {imports: withSync,
			code: "func f(m *sync.Mutex) { m.Lock(); defer m.Unlock() }"},
		"an error is not looked at, or not returned": {code: "func f(err error) error { if err != nil { return err }; " +
			"return nil }",
			want: []string{"error: if err != nil dropped", "comparison: err != nil → ==", "error: return err → nil"}},
		"its text is for people": {imports: withErrors, code: "func f() error { return errors.New(\"a\" + \"b\") }",
			want: []string{"error: return errors.New(\"a\" + \"b\") → nil"}},
		"durations are zero": {imports: withTime,
			code: "func f(a time.Time, d time.Duration) time.Time { return a.Add(d + 2*time.Second) }",
			want: []string{"duration: d → 0", "duration: 2*time.Second → 0"}},
		"but divide nothing": {imports: withTime, code: "func f(d time.Duration) time.Duration { return d / time.Second }",
			want: []string{"duration: d → 0"}},
		"integers are one more or less": {code: "func f(a int64) int64 { return a + 1 }",
			want: []string{"constant: 1 → +1 in a + 1", "constant: 1 → -1 in a + 1"}},
		"a size matters to nobody": {code: "func f() []int { return make([]int, 0, 8) }"},
		"arguments of one type change places": {
			code: "func f(a, b int, c string) { g(a, b, c) }\nfunc g(int, int, string) {}",
			want: []string{"statement: g(a, b, c) dropped", "swapped: a, b in g(a, b, c)"}},
		"all three of them": {code: "func f(a, b, c int) { g(a, b, c) }\nfunc g(int, int, int) {}",
			want: []string{"statement: g(a, b, c) dropped", "swapped: a, b in g(a, b, c)", "swapped: b, c in g(a, b, c)"}},
		"unless they are calls": {code: "func f(a int) { g(h(), a) }\nfunc g(int, int) {}\nfunc h() int { return g2 " +
			"}\nvar g2 int",
			want: []string{"statement: g(h(), a) dropped"}},
		"the methods for people stay": {code: "type T int\nfunc (t T) String() string { if t > 0 { return \"+\" }; return " +
			"\"-\" }"},
		"so does a message": {code: "type T struct { Message string; ok bool }\nfunc f(a bool) T { t := T{Message: g(a, " +
			"true), ok: a}; t.Message = g(a, true); return t }\nfunc g(bool, bool) string { return \"\" }",
			want: []string{"negation: a"}},
		"equal changes of one function are counted": {code: "func f(a, b bool) { _ = a == b; _ = a == b }",
			want: []string{"comparison: a == b → !=", "comparison: a == b → != #2"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := changes(t, tc.imports, tc.code); !slices.Equal(got, tc.want) {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}

package config_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/leasecast/leasecast/e2e/must/musttest"
)

var (
	namedTest = regexp.MustCompile("`((?:api|config|e2e|hub|member)[a-z0-9/]*)\\s([A-Za-z^][^ `]*)`")
	testFunc  = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	choice    = regexp.MustCompile(`^(.*)\((.*)\)(.*)$`)
)

// What the READMEs promise, they promise by the tests that they name.
func TestTheTestsThatReadmesNameAreThere(t *testing.T) {
	var text strings.Builder
	for _, pattern := range []string{"../*.md", "../*/*.md", "../*/*/*.md"} {
		files := musttest.Get(filepath.Glob(pattern))(t)
		for _, f := range files {
			content := musttest.Get(os.ReadFile(f))(t)
			text.Write(content)
		}
	}
	named := namedTest.FindAllStringSubmatch(text.String(), -1)
	if len(named) < 30 {
		t.Errorf("only %d tests are named", len(named))
	}
	for _, n := range named {
		files := musttest.Get(filepath.Glob(filepath.Join("..", n[1], "*_test.go")))(t)
		var code strings.Builder
		for _, f := range files {
			content := musttest.Get(os.ReadFile(f))(t)
			code.Write(content)
		}
		expression, subtest, _ := strings.Cut(n[2], "/")
		for _, one := range choices(expression) {
			if !someMatches(one, code.String()) {
				t.Errorf("package %s has no test %s", n[1], one)
			}
		}
		if !strings.Contains(code.String(), strings.ReplaceAll(subtest, "_", " ")) {
			t.Errorf("package %s has no subtest %s", n[1], subtest)
		}
	}
}

// choices are the expressions that one stands for, each of which is to match something.
func choices(expression string) (all []string) {
	parts := choice.FindStringSubmatch(expression)
	if parts == nil {
		return []string{expression}
	}
	for one := range strings.SplitSeq(parts[2], "|") {
		all = append(all, parts[1]+one+parts[3])
	}
	return all
}

func someMatches(expression, code string) bool {
	pattern := regexp.MustCompile(expression)
	for _, f := range testFunc.FindAllStringSubmatch(code, -1) {
		if pattern.MatchString(f[1]) {
			return true
		}
	}
	return false
}

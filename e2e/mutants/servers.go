package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// leftOut are tests on the shared server of their package that take long, because they wait
// for what a real API server does by itself. The quicker ones of hub/guard ask about the same code.
var leftOut = map[string][]string{
	"hub/guard": {
		"TestKeeper_RevertsEdits",                       // many edits
		"TestGuard_NeedsEachVerbThatConfigMemberGrants", // waits until each policy takes effect
		"TestWriteFence_AcceptsEveryVerbOfTheLeader",    // starts kubectl many times
		"TestGuard_NamespaceIsDeletedWithItsLeases",     // waits for the namespace controller
		"TestGuard_RejectsCoordinatedElection",          // starts another server
	},
}

// starters are the packages that start real API servers.
var starters = []string{"sigs.k8s.io/controller-runtime/pkg/envtest", "github.com/leasecast/leasecast/e2e/fleet"}

// startServers returns the tests of a folder that start a real API server: whatever they call,
// by name, in the test files of the folder. If TestMain does, the tests share its server,
// and are returned only for what they start themselves.
func startServers(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	calls := map[string][]string{} // function or method → names that it uses
	starts := map[string]bool{}
	fset := token.NewFileSet()
	for _, path := range files {
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		imported := map[string]bool{}
		for _, i := range f.Imports {
			if path := strings.Trim(i.Path.Value, `"`); slices.Contains(starters, path) {
				name := path[strings.LastIndex(path, "/")+1:]
				if i.Name != nil {
					name = i.Name.Name
				}
				imported[name] = true
			}
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok && imported[x.Name] {
						starts[fn.Name.Name] = true
					}
				case *ast.Ident:
					calls[fn.Name.Name] = append(calls[fn.Name.Name], n.Name)
				}
				return true
			})
		}
	}
	for grew := true; grew; {
		grew = false
		for name, uses := range calls {
			if !starts[name] && slices.ContainsFunc(uses, func(u string) bool { return starts[u] }) {
				starts[name], grew = true, true
			}
		}
	}
	maps.DeleteFunc(starts, func(name string, _ bool) bool { return !strings.HasPrefix(name, "Test") })
	return slices.Sorted(maps.Keys(starts)), nil
}

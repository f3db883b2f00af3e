// Command sbom writes the software bill of materials of our programs, in CycloneDX's JSON: every module that is linked
// into them, with its version and its license. It fails where a license is not known to be compatible with ours. make
// image and make verify run it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/licensecheck"
)

// compatible are the licenses, by their SPDX identifiers, of what may be linked into a program under Apache-2.0
// (https://www.apache.org/legal/resolved.html, category A).
var compatible = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"}

// ours is what the paths of this repository's own modules begin with.
const ours = "github.com/leasecast/leasecast/"

// enough is how much of a file, in percent, must be the text of licenses. The rest is the notice of who has the rights.
const enough = 75

func main() {
	version := flag.String("version", "", "version of our programs")
	arch := flag.String("arch", runtime.GOARCH, "architecture of our programs")
	out := flag.String("out", "", "the file to write; without it only the licenses are checked")
	flag.Parse()
	if err := run(*version, *arch, *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// module is one that is linked into a program.
type module struct {
	path, version, dir string
}

func run(version, arch, out string, packages []string) error {
	modules, err := linked(arch, packages)
	if err != nil {
		return err
	}
	var errs []error
	var components []cyclonedx.Component
	for _, m := range modules {
		licenses, err := licensesIn(m.dir)
		if err == nil {
			err = allowed(licenses)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("module %s %s: %w", m.path, m.version, err))
		}
		components = append(components, component(m, licenses))
	}
	if err := errors.Join(errs...); err != nil || out == "" {
		return err
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Component: &cyclonedx.Component{
		Type: cyclonedx.ComponentTypeApplication, Name: "leasecast", Version: version,
		Licenses: &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}},
	}}
	bom.Components = &components
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	err = cyclonedx.NewBOMEncoder(file, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
	return errors.Join(err, file.Close())
}

// linked returns the modules of others that these packages are made of on Linux, in order.
func linked(arch string, packages []string) (modules []module, err error) {
	const line = "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Version}}\t{{.Dir}}{{end}}{{end}}"
	args := append([]string{"list", "-deps", "-f", line}, packages...)
	list := exec.Command("go", args...) //nolint:gosec // the arguments are the Makefile's
	list.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=0")
	raw, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list what the programs are made of: %w", err)
	}
	lines := slices.Compact(slices.Sorted(strings.Lines(string(raw))))
	for _, l := range lines {
		if f := strings.Split(strings.TrimSpace(l), "\t"); len(f) == 3 && !strings.HasPrefix(f[0], ours) {
			modules = append(modules, module{f[0], f[1], f[2]})
		}
	}
	if len(modules) == 0 {
		return nil, errors.New("the programs are made of nothing")
	}
	return modules, nil
}

// licensesIn returns the licenses of a module, as SPDX identifiers.
func licensesIn(dir string) (ids []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		names := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
		if e.IsDir() || !slices.ContainsFunc([]string{"LICENSE", "LICENCE", "COPYING"}, names) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		coverage := licensecheck.Scan(text)
		if coverage.Percent < enough {
			return nil, fmt.Errorf("%s is no license that is known", e.Name())
		}
		for _, m := range coverage.Match {
			ids = append(ids, m.ID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// allowed returns an error unless all of the licenses are compatible with ours. There is one at least.
func allowed(ids []string) error {
	if len(ids) == 0 {
		return errors.New("it has no license")
	}
	for _, id := range ids {
		if !slices.Contains(compatible, id) {
			return fmt.Errorf("its license %s is not known to be compatible with Apache-2.0: "+
				"use another module, or have it looked at", id)
		}
	}
	return nil
}

func component(m module, licenses []string) cyclonedx.Component {
	c := cyclonedx.Component{
		Type: cyclonedx.ComponentTypeLibrary, Name: m.path, Version: m.version,
		BOMRef: m.path, PackageURL: "pkg:golang/" + m.path + "@" + m.version,
	}
	all := cyclonedx.Licenses{}
	for _, id := range licenses {
		all = append(all, cyclonedx.LicenseChoice{License: &cyclonedx.License{ID: id}})
	}
	c.Licenses = &all
	return c
}

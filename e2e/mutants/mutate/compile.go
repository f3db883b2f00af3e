package mutate

import (
	"context"
	"fmt"
	"slices"
)

// Packages are packages of which other versions can be compiled.
type Packages struct{ sources []*source }

// Load reads packages, which are given as to `go list`, in dir.
func Load(ctx context.Context, dir string, patterns ...string) (*Packages, error) {
	sources, err := load(ctx, dir, patterns)
	return &Packages{sources}, err
}

// Compile returns the first thing that the compiler would say if the file at a path from the root of the module had
// this text.
func (p *Packages) Compile(path, text string) error {
	for _, s := range p.sources {
		i := slices.IndexFunc(s.files, func(f *file) bool { return f.path == path })
		if i < 0 {
			continue
		}
		texts := make([][]byte, len(s.files))
		for j, f := range s.files {
			texts[j] = f.text
		}
		texts[i] = []byte(text)
		errs, err := s.errorsOf(texts)
		if err == nil && len(errs) > 0 {
			err = errs[0]
		}
		return err
	}
	return fmt.Errorf("%s is in none of the packages", path)
}

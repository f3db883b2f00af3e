package mutate

import (
	"context"
	"fmt"
)

// Packages are packages of which other versions can be compiled.
type Packages struct{ sources []*source }

// Load reads packages, which are given as to `go list`, in dir.
func Load(ctx context.Context, dir string, patterns ...string) (*Packages, error) {
	sources, err := load(ctx, dir, patterns)
	return &Packages{sources}, err
}

// Compile returns the first thing that the compiler would say if files had these texts, by their paths from the root of
// the module. Each package meets the others as they are. A file that is in none of them, such as a test, is left out.
func (p *Packages) Compile(changed map[string]string) error {
	for _, s := range p.sources {
		texts, differs := make([][]byte, len(s.files)), false
		for i, f := range s.files {
			texts[i] = f.text
			if text, ok := changed[f.path]; ok {
				texts[i], differs = []byte(text), true
			}
		}
		if !differs {
			continue
		}
		errs, err := s.errorsOf(texts)
		if err == nil && len(errs) > 0 {
			err = errs[0]
		}
		if err != nil {
			return fmt.Errorf("it does not compile: %w", err)
		}
	}
	return nil
}

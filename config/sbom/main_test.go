package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	isc = "Permission to use, copy, modify, and/or distribute this software for any purpose " +
		"with or without fee is hereby granted, " +
		"provided that the above copyright notice and this permission notice appear in all copies.\n\n" +
		"THE SOFTWARE IS PROVIDED \"AS IS\" AND THE AUTHOR DISCLAIMS ALL WARRANTIES " +
		"WITH REGARD TO THIS SOFTWARE INCLUDING ALL IMPLIED " +
		"WARRANTIES OF MERCHANTABILITY AND FITNESS. IN NO EVENT SHALL THE AUTHOR BE LIABLE " +
		"FOR ANY SPECIAL, DIRECT, INDIRECT, OR " +
		"CONSEQUENTIAL DAMAGES OR ANY DAMAGES WHATSOEVER RESULTING FROM LOSS OF USE, DATA OR PROFITS, " +
		"WHETHER IN AN ACTION OF CONTRACT, " +
		"NEGLIGENCE OR OTHER TORTIOUS ACTION, ARISING OUT OF OR IN CONNECTION WITH THE USE OR PERFORMANCE OF THIS SOFTWARE.\n"
	mozilla = "This Source Code Form is subject to the terms of the Mozilla Public\n" +
		"License, v. 2.0. If a copy of the MPL was not distributed with this\n" +
		"file, You can obtain one at http://mozilla.org/MPL/2.0/.\n"
	unknown = "You may look at this program, and run it on Sundays.\n"
)

func TestWhichModulesMayBeLinked(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  string // what is wrong; empty: nothing
	}{
		"one with a license that is compatible": {map[string]string{"LICENSE": isc}, ""},
		"one that spells it otherwise":          {map[string]string{"Licence.txt": isc}, ""},
		"one with two licenses, one of which is not": {
			map[string]string{"LICENSE": isc, "COPYING": mozilla}, "its license MPL-2.0 is not known to be compatible",
		},
		"one without a license":     {map[string]string{"README.md": isc}, "it has no license"},
		"one with words of its own": {map[string]string{"LICENSE": unknown}, "LICENSE is no license that is known"},
		"one with much besides a license": {
			files: map[string]string{"LICENSE": isc + strings.Repeat(unknown, 50)},
			want:  "LICENSE is no license that is known",
		},
		"one whose license is a folder":    {map[string]string{"LICENSES/ISC.txt": isc}, "it has no license"},
		"one with a license and a notice ": {map[string]string{"LICENSE": "Copyright 2026 the authors\n\n" + isc}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range test.files {
				file = filepath.Join(dir, file)
				if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			ids, err := licensesIn(dir)
			if err == nil {
				err = allowed(ids)
			}
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("licenses %v: %v, want %q", ids, err, test.want)
			}
		})
	}
}

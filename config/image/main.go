// Command image builds an image of static programs without a registry or Docker. docker load and kind load
// image-archive read its archive. make image runs it.
package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// certificates are the machine's, for kubeconfigs that name no authority.
const certificates = "/etc/ssl/certs/ca-certificates.crt"

func main() {
	programs := flag.String("program", "", "comma-separated static programs; the image runs the first")
	name := flag.String("name", "", "name of the image, with a tag")
	arch := flag.String("arch", "", "architecture of the programs")
	out := flag.String("out", "", "the archive")
	flag.Parse()
	if err := run(*programs, *name, *arch, *out); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

type file struct {
	name    string
	mode    int64
	content []byte
}

func run(programs, name, arch, out string) error {
	if programs == "" || name == "" || arch == "" || out == "" {
		return errors.New("-program, -name, -arch and -out are needed")
	}
	var files []file
	for program := range strings.SplitSeq(programs, ",") {
		binary, err := os.ReadFile(program)
		if err != nil {
			return err
		}
		files = append(files, file{"/" + filepath.Base(program), 0o755, binary})
	}
	roots, err := os.ReadFile(certificates)
	switch {
	case err == nil:
		files = append(files, file{certificates, 0o644, roots})
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	layer, err := archive(files)
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": arch, "os": "linux", "created": time.Unix(0, 0).UTC(),
		"config": map[string]any{"Entrypoint": []string{files[0].name}, "User": "65532:65532", "WorkingDir": "/"},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}},
	})
	if err != nil {
		return err
	}
	configName := digest(config)[len("sha256:"):] + ".json"
	manifest, err := json.Marshal([]map[string]any{{
		"Config":   configName,
		"RepoTags": []string{name},
		"Layers":   []string{"layer.tar"},
	}})
	if err != nil {
		return err
	}
	image, err := archive([]file{
		{"manifest.json", 0o644, manifest},
		{configName, 0o644, config},
		{"layer.tar", 0o644, layer},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(out, image, 0o644)
}

func digest(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

// archive is the same for the same files.
func archive(files []file) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	made := map[string]bool{".": true, "/": true}
	var folder func(string) error
	folder = func(name string) error {
		if made[name] {
			return nil
		}
		if err := folder(path.Dir(name)); err != nil {
			return err
		}
		made[name] = true
		return w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeDir,
			Name:     trim(name) + "/",
			Mode:     0o755,
			ModTime:  time.Unix(0, 0),
		})
	}
	for _, f := range files {
		if err := folder(path.Dir(f.name)); err != nil {
			return nil, err
		}
		header := &tar.Header{
			Typeflag: tar.TypeReg,
			Name:     trim(f.name),
			Mode:     f.mode,
			Size:     int64(len(f.content)),
			ModTime:  time.Unix(0, 0),
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

func trim(name string) string {
	for len(name) > 0 && name[0] == '/' {
		name = name[1:]
	}
	return name
}

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
	"path/filepath"
	"strings"
	"testing/fstest"
	"time"
)

// certificates are the machine's, for kubeconfigs that name no authority.
const certificates = "etc/ssl/certs/ca-certificates.crt"

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

func run(programs, name, arch, out string) error {
	if programs == "" || name == "" || arch == "" || out == "" {
		return errors.New("-program, -name, -arch and -out are needed")
	}
	all := strings.Split(programs, ",")
	files := fstest.MapFS{}
	for _, program := range all {
		binary, err := os.ReadFile(program)
		if err != nil {
			return err
		}
		files[filepath.Base(program)] = &fstest.MapFile{Mode: 0o755, Data: binary}
	}
	roots, err := os.ReadFile("/" + certificates)
	if err == nil {
		files[certificates] = &fstest.MapFile{Mode: 0o644, Data: roots}
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	layer, layerErr := archive(files)
	config, configErr := json.Marshal(map[string]any{
		"architecture": arch, "os": "linux", "created": time.Unix(0, 0).UTC(),
		"config": map[string]any{
			"Entrypoint": []string{"/" + filepath.Base(all[0])}, "User": "65532:65532", "WorkingDir": "/",
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	configName := fmt.Sprintf("%x.json", sha256.Sum256(config))
	manifest, err := json.Marshal([]map[string]any{
		{"Config": configName, "RepoTags": []string{name}, "Layers": []string{"layer.tar"}},
	})
	if err := errors.Join(layerErr, configErr, err); err != nil {
		return err
	}
	image, err := archive(fstest.MapFS{
		"manifest.json": {Mode: 0o644, Data: manifest}, configName: {Mode: 0o644, Data: config},
		"layer.tar": {Mode: 0o644, Data: layer},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(out, image, 0o644)
}

// archive is the same for the same files.
func archive(files fstest.MapFS) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err := errors.Join(w.AddFS(files), w.Close())
	return b.Bytes(), err
}

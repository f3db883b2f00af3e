// Command argocd is the real ApplicationSet controller of Argo CD (Apache-2.0). Argo CD's own program holds its
// servers, too, which take longer to build.
package main

import (
	"os"

	command "github.com/argoproj/argo-cd/v3/cmd/argocd-applicationset-controller/commands"
)

func main() {
	if err := command.NewCommand().Execute(); err != nil {
		os.Exit(1)
	}
}

// Command kubectl-leasecast shows who leads which namespace and why, and orders what operators decide. It is a plugin
// of kubectl, and under the name clusterctl-leasecast a plugin of clusterctl. It reads the objects of one fleet in the
// management cluster, and writes annotations only. Its exit code is 2 where something needs attention, and 1 where it
// could not find out.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// version is stamped by the linker (see Makefile).
var version = "devel"

// errAttention ends the plugin with code 2: it has said what needs attention.
var errAttention = errors.New("something needs attention")

func main() {
	p := newPlugin(genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr})
	switch err := p.command(filepath.Base(os.Args[0])).Execute(); {
	case errors.Is(err, errAttention):
		os.Exit(2)
	case errors.Is(err, syscall.EPIPE):
		os.Exit(1) // nobody reads any more
	case err != nil:
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// plugin is what all commands share.
type plugin struct {
	genericiooptions.IOStreams
	flags        *genericclioptions.ConfigFlags
	hubNamespace string
	hubAddress   string
	output       string
	now          func() time.Time
	connect      func() (client.WithWatch, string, error) // the client, and the fleet
}

func newPlugin(streams genericiooptions.IOStreams) *plugin {
	p := &plugin{IOStreams: streams, flags: genericclioptions.NewConfigFlags(true), now: time.Now}
	p.connect = p.connectTo
	return p
}

// connectTo makes a client by the usual flags. The fleet is --namespace, or else the namespace of the context.
func (p *plugin) connectTo() (client.WithWatch, string, error) {
	config, err := p.flags.ToRESTConfig()
	if err != nil {
		return nil, "", err
	}
	config.QPS, config.Burst = -1, -1 // one person asks
	fleet, _, err := p.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, "", err
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme, Mapper: mapper})
	return c, fleet, err
}

// command is the root. It is called as kubectl leasecast or as clusterctl leasecast.
func (p *plugin) command(name string) *cobra.Command {
	name = strings.TrimSuffix(name, ".exe")
	root := &cobra.Command{
		Use:   name,
		Short: "Who leads which namespace, why, and what to do about it",
		Annotations: map[string]string{
			cobra.CommandDisplayNameAnnotation: strings.Replace(name, "-", " ", 1),
		},
		SilenceUsage: true, SilenceErrors: true, Version: version,
	}
	p.flags.AddFlags(root.PersistentFlags())
	root.PersistentFlags().StringVar(&p.hubNamespace, "hub-namespace", "leasecast-system",
		"the namespace that the hub runs in")
	root.AddCommand(p.statusCommand(), p.explainCommand(), p.historyCommand(), p.whatIfCommand(), p.verifyCommand(),
		p.fencesCommand())
	root.AddCommand(operator{p}.actCommands()...)
	root.AddCommand(p.bundleCommand())
	return root
}

// outputs adds the flag for the form of the output.
func (p *plugin) outputs(c *cobra.Command, forms ...string) {
	c.Flags().StringVarP(&p.output, "output", "o", "", "the form of the output: "+strings.Join(forms, ", "))
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(forms, cobra.ShellCompDirectiveNoFileComp))
}

// example is the text of a command's examples, each of a line.
func example(lines ...string) string {
	return "  kubectl leasecast " + strings.Join(lines, "\n  kubectl leasecast ")
}

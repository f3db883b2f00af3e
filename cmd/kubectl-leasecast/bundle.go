package main

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub"
)

// maxLog bounds what is taken of one Pod's log, in bytes, and lastLines how many of its last lines are.
const maxLog, lastLines = 16 << 20, 50_000

func (p *plugin) bundleCommand() *cobra.Command {
	file := ""
	c := &cobra.Command{
		Use: "bundle", Short: "Write an archive for support: objects, events and logs; no Secret and no token",
		Args:    cobra.NoArgs,
		Example: example("bundle", "bundle -f support.tar.gz"),
		RunE: func(c *cobra.Command, _ []string) error {
			s, api, err := p.read(c.Context())
			if err != nil {
				return err
			}
			name := cmp.Or(file, "leasecast-"+s.at.UTC().Format("20060102-150405")+".tar.gz")
			f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return err
			}
			b := newBundle(f, s)
			b.objects(c.Context(), api)
			b.logs(c.Context(), p)
			if err := cmp.Or(b.close(), f.Close()); err != nil {
				return err
			}
			_, err = fmt.Fprintln(p.Out, name)
			return err
		},
	}
	c.Flags().StringVarP(&file, "file", "f", "", "the archive; it must not exist yet")
	return c
}

// bundle is an archive that is being written.
type bundle struct {
	*snapshot
	zip *gzip.Writer
	tar *tar.Writer
	err error
}

func newBundle(to io.Writer, s *snapshot) *bundle {
	zip := gzip.NewWriter(to)
	return &bundle{snapshot: s, zip: zip, tar: tar.NewWriter(zip)}
}

func (b *bundle) close() error { return cmp.Or(b.err, b.tar.Close(), b.zip.Close()) }

// add adds a file.
func (b *bundle) add(name string, content []byte) {
	header := &tar.Header{Name: "leasecast/" + name, Mode: 0o600, Size: int64(len(content)), ModTime: b.at}
	if b.err == nil {
		b.err = b.tar.WriteHeader(header)
	}
	if b.err == nil {
		_, b.err = b.tar.Write(content)
	}
}

// addYAML adds a value. Where it cannot be had, its file says why.
func (b *bundle) addYAML(name string, value any, err error) {
	text := []byte(nil)
	if err == nil {
		text, err = yaml.Marshal(value)
	}
	if err != nil {
		name, text = name+".error", []byte(err.Error())
	}
	b.add(name, text)
}

// objects adds what the management cluster says of the fleet. Of a Cluster it has only what the hub reads.
func (b *bundle) objects(ctx context.Context, api client.Client) {
	b.addYAML("status.yaml", statusOf(b.snapshot), nil)
	for i := range b.records {
		b.records[i].ManagedFields, b.records[i].Annotations = nil, ours(b.records[i].Annotations)
	}
	for i := range b.policies {
		b.policies[i].ManagedFields, b.policies[i].Annotations = nil, ours(b.policies[i].Annotations)
	}
	b.addYAML("records.yaml", b.records, nil)
	b.addYAML("policies.yaml", b.policies, nil)
	b.addYAML("clusters.yaml", slimClusters(b.clusters), nil)
	var events corev1.EventList
	err := api.List(ctx, &events, client.InNamespace(b.fleet))
	// Others may put anything into theirs.
	events.Items = slices.DeleteFunc(events.Items, func(e corev1.Event) bool {
		return e.ReportingController != hub.ElectionName
	})
	for i := range events.Items {
		events.Items[i].ManagedFields = nil
	}
	b.addYAML("events.yaml", events.Items, err)
}

// slimClusters keeps names, labels of ours and annotations of ours.
func slimClusters(all []clusterv1.Cluster) []clusterv1.Cluster {
	slim := make([]clusterv1.Cluster, len(all))
	for i := range all {
		slim[i].Name, slim[i].Namespace, slim[i].UID = all[i].Name, all[i].Namespace, all[i].UID
		slim[i].CreationTimestamp, slim[i].DeletionTimestamp = all[i].CreationTimestamp, all[i].DeletionTimestamp
		slim[i].Labels, slim[i].Annotations = ours(all[i].Labels), ours(all[i].Annotations)
		slim[i].Spec.Paused = all[i].Spec.Paused
	}
	return slim
}

func ours(all map[string]string) map[string]string {
	kept := map[string]string{}
	for key, value := range all {
		domain, _, _ := strings.Cut(key, "/")
		if strings.HasSuffix(domain, "leasecast.dev") && key != v1alpha1.PinProofAnnotation {
			kept[key] = value
		}
	}
	return kept
}

// logs adds the logs of the hub's Pods.
func (b *bundle) logs(ctx context.Context, p *plugin) {
	config, err := p.flags.ToRESTConfig()
	if err != nil {
		b.add("logs.error", []byte(err.Error()))
		return
	}
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		b.add("logs.error", []byte(err.Error()))
		return
	}
	ofHub := metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + hub.ElectionName}
	pods, err := api.CoreV1().Pods(p.hubNamespace).List(ctx, ofHub)
	if err != nil {
		b.add("logs.error", []byte(err.Error()))
		return
	}
	for i := range pods.Items {
		for _, previous := range []bool{false, true} {
			o := corev1.PodLogOptions{
				Previous: previous, LimitBytes: ptr.To[int64](maxLog), TailLines: ptr.To[int64](lastLines), Timestamps: true,
			}
			name := fmt.Sprintf("logs/%s-previous-%t.log", pods.Items[i].Name, previous)
			text, err := api.CoreV1().Pods(p.hubNamespace).GetLogs(pods.Items[i].Name, &o).DoRaw(ctx)
			if err != nil {
				name, text = name+".error", []byte(err.Error())
			}
			b.add(name, text)
		}
	}
}

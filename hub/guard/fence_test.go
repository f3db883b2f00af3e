package guard_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/rights"
)

// write is one way to write, after an administrator has prepared something.
type write struct {
	prepare, do string
	// The answers to the leader, and once the term has ended while the hub is silent.
	leader, ended string
}

const (
	timeless = allowed // it carries no time of the API server
	anytime  = "accepted anywhere"
	aConfig  = "create configmaps"
	// readyStatus is what a controller writes.
	readyStatus = `merge deployments/status {"status":{"observedGeneration":7}}`
	// untimed has managedFields without times.
	untimed = aConfig + ` ; merge configmaps {"metadata":{"managedFields":[{"manager":"other","operation":"Update",` +
		`"apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:a":{}}}}]}}`
	ephemeral = `strategic pods/ephemeralcontainers ` +
		`{"spec":{"ephemeralContainers":[{"name":"e","image":"i","targetContainerName":"c"}]}}`
)

// writes are documented in README.md: each row of its table is one of these.
var writes = map[string]write{
	"create": {"", aConfig, allowed, termIsOver},
	"create with generateName": {"", aConfig + ` {"metadata":{"name":null,"generateName":"NAME"}}`,
		allowed, termIsOver},
	"create with a time": {"", aConfig + ` {"metadata":{"creationTimestamp":"2020-01-01T00:00:00Z"}}`,
		allowed, termIsOver},
	"create by server-side apply": {"", "apply configmaps", allowed, termIsOver},
	"create as a dry run":         {"", "create configmaps?dryRun=All", anytime, anytime},
	"update":                      {aConfig, `update configmaps {"data":{"a":"2"}}`, allowed, termIsOver},
	"update of a label":           {aConfig, `update configmaps {"metadata":{"labels":{"a":"2"}}}`, allowed, termIsOver},
	"update with managedFields of its own": {aConfig, `update configmaps {"data":{"a":"2"},"metadata":{"managedFields":[` +
		`{"manager":"other","operation":"Update","apiVersion":"v1","time":"2020-01-01T00:00:00Z","fieldsType":"FieldsV1",` +
		`"fieldsV1":{"f:data":{"f:b":{}}}}]}}`, allowed, termIsOver},
	"update that empties managedFields": {aConfig,
		`update configmaps {"data":{"a":"2"},"metadata":{"managedFields":[{}]}}`, termIsOver, termIsOver},
	"update that only removes fields": {aConfig, `update configmaps {"data":{"b":null}}`, allowed, timeless},
	"update that only reorders": {aConfig + ` {"metadata":{"finalizers":["example.com/a","example.com/b"]}}`,
		`update configmaps {"metadata":{"finalizers":["example.com/b","example.com/a"]}}`, allowed, timeless},
	"update of untimed managedFields":  {untimed, `update configmaps {"data":{"a":"2"}}`, allowed, termIsOver},
	"removal with untimed ones":        {untimed, `update configmaps {"data":{"b":null}}`, termIsOver, termIsOver},
	"update that changes nothing":      {aConfig, `update configmaps`, anytime, anytime},
	"merge patch":                      {aConfig, `merge configmaps {"data":{"a":"2"}}`, allowed, termIsOver},
	"merge patch that changes nothing": {aConfig, `merge configmaps {"data":{"a":"1"}}`, anytime, anytime},
	"strategic merge patch":            {aConfig, `strategic configmaps {"data":{"a":"2"}}`, allowed, termIsOver},
	"JSON patch": {aConfig, `json configmaps [{"op":"replace","path":"/data/a","value":"2"}]`,
		allowed, termIsOver},
	"apply": {aConfig, `apply configmaps {"data":{"a":"2"}}`, allowed, termIsOver},
	"apply as a dry run": {aConfig, `apply configmaps?fieldManager=test&dryRun=All {"data":{"a":"2"}}`, anytime,
		anytime},
	"apply that changes nothing": {"apply configmaps", "apply configmaps", anytime, anytime},
	"apply of another's values":  {"apply configmaps?fieldManager=another", "apply configmaps", allowed, timeless},
	"status":                     {"create deployments", readyStatus, allowed, termIsOver},
	"scale": {"create deployments", `update deployments/scale {"spec":{"replicas":5}}`,
		allowed, timeless},
	"delete":              {aConfig, "delete configmaps", allowed, timeless},
	"delete as a dry run": {aConfig, "delete configmaps?dryRun=All", anytime, anytime},
	"delete-collection":   {aConfig, "collection configmaps", allowed, timeless},
	"binding":             {"create pods", "create bindings", allowed, timeless},
	"eviction":            {"create pods", "create pods/eviction", allowed, timeless},
	"ephemeral container": {"create pods", ephemeral, allowed, termIsOver},
	"ephemeral without anything timed": {`create pods ; strategic pods {"metadata":{"managedFields":[{}]}}`, ephemeral,
		termIsOver, termIsOver},
}

func TestWriteFence_RejectsWritesOutsideTheTerm(t *testing.T) {
	parallel(t)
	admin := administrator(t)
	led, follower, ended := newNamespace(t), newNamespace(t), newNamespace(t)
	ahead, bare := newNamespace(t), newNamespace(t)
	states := map[string]*state{led: &eastLeads, follower: &westLeads, ended: &termEnded, ahead: &hubAhead, bare: nil}
	clients := map[string]*kubernetes.Clientset{}
	for ns := range states {
		clients[ns] = checkout(t, ns)
		for what, w := range writes {
			if w.prepare != "" {
				mustSend(t, admin, ns, nameOf(what), w.prepare)
			}
		}
	}
	fences(t, checkoutWrites, states)
	answersSoon(t, clients[led], led, aConfig, allowed) // the wall excludes it
	for name, in := range map[string]struct {
		namespace string
		answer    func(write) string
	}{
		"its cluster leads":     {led, func(w write) string { return w.leader }},
		"another cluster leads": {follower, func(write) string { return notLeading }},
		"the term has ended":    {ended, func(w write) string { return w.ended }},
		"there is no Lease":     {bare, func(write) string { return noLeader }},
		"the hub's clock is ahead": {ahead, func(w write) string {
			if w.leader == allowed && w.ended != timeless {
				return hubIsAhead
			}
			return w.leader
		}},
	} {
		client := clients[in.namespace]
		answersSoon(t, client, in.namespace, aConfig, in.answer(writes["create"]))
		for what, w := range writes {
			t.Run(name+"/"+what, func(t *testing.T) {
				want := in.answer(w)
				if w.leader == anytime {
					want = allowed
				}
				mustAnswer(t, client, in.namespace, nameOf(what), w.do, want)
				next := in.answer(writes["merge patch"])
				later := send(t.Context(), client, in.namespace, nameOf(what), changesLater(w))
				if w.leader != termIsOver && (later == nil || refusedByPolicy(later)) && expect(later, next) != nil {
					t.Errorf("the next write of the object: %v, want: %s", later, next)
				}
				if err := send(t.Context(), admin, in.namespace, nameOf(what), w.do); refusedByPolicy(err) {
					t.Errorf("an account that is not fenced: %v", err)
				}
			})
		}
	}
}

// changesLater returns a patch of the object that a write has left. Each write leaves managedFields of its own kind.
func changesLater(w write) string {
	words := strings.FieldsFunc(w.do, func(r rune) bool { return strings.ContainsRune(" /?", r) })
	return "merge " + words[1] + ` {"metadata":{"annotations":{"a":"later"}}}`
}

func refusedByPolicy(err error) bool {
	return err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy")
}

// nameOf returns the name of the object that a row is about.
func nameOf(row string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return r
		}
		return '-'
	}, "o"+row+"o")
}

// relabels gives an object another value of the label by which it is fenced.
func relabels(value string) string {
	return `merge configmaps {"metadata":{"labels":{"led":` + value + `}}}`
}

func TestWriteFence_OfObjectsRejectsEveryWriter(t *testing.T) {
	parallel(t)
	admin := administrator(t)
	ledConfig, otherConfig := aConfig+" {"+led+"}", aConfig+` {"metadata":{"labels":{"led":"stock"}}}`
	rows := map[string]write{ // the answer to the leader, and after the term; anytime: it is not fenced
		"create":                      {"", ledConfig, allowed, termIsOver},
		"create with another value":   {"", otherConfig, anytime, anytime},
		"create without the label":    {"", aConfig, anytime, anytime},
		"patch":                       {ledConfig, `merge configmaps {"data":{"a":"2"}}`, allowed, termIsOver},
		"removal of the label":        {ledConfig, relabels("null"), labelTaken, labelTaken},
		"addition of the label":       {aConfig, relabels(`"shop"`), allowed, termIsOver},
		"another value":               {ledConfig, relabels(`"stock"`), allowed, termIsOver},
		"removal of another value":    {otherConfig, relabels("null"), anytime, anytime},
		"delete":                      {ledConfig, "delete configmaps", allowed, timeless},
		"delete of what has no label": {aConfig, "delete configmaps", anytime, anytime},
		"status":                      {"create deployments {" + led + "}", readyStatus, allowed, termIsOver},
		"scale, which has no labels": {"create deployments {" + led + "}", `update deployments/scale {"spec":{"replicas":5}}`,
			anytime, anytime},
	}
	leader, follower, ended := newNamespace(t), newNamespace(t), newNamespace(t)
	states := map[string]*state{leader: &eastLeads, follower: &westLeads, ended: &termEnded}
	writers := map[string]func(ns string) *kubernetes.Clientset{
		"an account of the namespace": func(ns string) *kubernetes.Clientset { return checkout(t, ns) },
		"an administrator":            func(string) *kubernetes.Clientset { return admin },
		"a controller of the cluster": func(string) *kubernetes.Clientset {
			return clientFor(t, accountConfig(t, metav1.NamespaceSystem, "namespace-controller", everyResource))
		},
		"the hub": func(string) *kubernetes.Clientset {
			return impersonating(t, server.AdminConfig(), rights.UserPrefix+"a")
		},
		"the hub with a prepared kubeconfig": func(string) *kubernetes.Clientset {
			return impersonating(t, server.AdminConfig(), "system:serviceaccount:leasecast-system:leasecast-hub")
		},
	}
	for who := range writers {
		for what, w := range rows {
			for ns := range states {
				if w.prepare != "" {
					mustSend(t, admin, ns, nameOf(who+what), w.prepare)
				}
			}
		}
	}
	fences(t, ledConfigMaps, states)
	answersSoon(t, admin, leader, ledConfig, allowed) // the wall excludes it
	for ns, answer := range map[string]func(write) string{
		leader:   func(w write) string { return w.leader },
		follower: func(write) string { return notLeading },
		ended:    func(w write) string { return w.ended },
	} {
		answersSoon(t, admin, ns, ledConfig, answer(rows["create"]))
		for who, client := range writers {
			writer := client(ns)
			for what, w := range rows {
				t.Run(who+"/"+answer(rows["create"])+"/"+what, func(t *testing.T) {
					want := answer(w)
					if w.leader == anytime || who == "a controller of the cluster" || strings.HasPrefix(who, "the hub") {
						want = allowed
					}
					mustAnswer(t, writer, ns, nameOf(who+what), w.do, want)
				})
			}
		}
	}
}

const led = `"metadata":{"labels":{"led":"shop"}}`

// A write counts as its user's, whom the API server takes the caller for. A connection to a Pod is no write.
func TestWriteFence_FollowsImpersonation(t *testing.T) {
	parallel(t)
	ns, admin := newNamespace(t), administrator(t)
	fences(t, checkoutWrites, map[string]*state{ns: &westLeads})
	config := accountConfig(t, ns, "checkout", everyResource)
	client := clientFor(t, config)
	answersSoon(t, client, ns, aConfig, notLeading)
	account := "system:serviceaccount:" + ns + ":checkout"
	mustAnswer(t, impersonating(t, server.AdminConfig(), account), ns, "a", aConfig, notLeading)
	mustAnswer(t, impersonating(t, config, "somebody"), ns, "b", aConfig, allowed)
	mustSend(t, admin, ns, "pod", "create pods")
	// No node runs the Pod. So the API server has an answer of its own, which comes after admission.
	err := client.CoreV1().RESTClient().Post().Namespace(ns).Resource("pods").Name("pod").SubResource("exec").
		Param("container", "c").Param("command", "true").Param("stdout", "true").Do(t.Context()).Error()
	if err := expect(err, "does not have a host assigned"); err != nil {
		t.Error(err)
	}
}

// warnings collects the warnings of an API server.
type warnings struct {
	mu  sync.Mutex
	all []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

// taken returns the warnings, and forgets them.
func (w *warnings) taken() (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all, w.all = w.all, nil
	return all
}

// A fence that warns accepts everything, and warns once, with the reason.
func TestFenceThatWarns_AcceptsEverything(t *testing.T) {
	parallel(t)
	warned := &warnings{}
	config := server.AdminConfig()
	config.WarningHandler = warned
	client := clientFor(t, config)
	ended := state{began: -time.Hour, renewed: -time.Hour, lasts: time.Minute}
	endedElsewhere := ended
	endedElsewhere.holder = "west.fleet"
	for name, test := range map[string]struct {
		lease *state
		want  []string
	}{
		"its cluster leads":                     {&eastLeads, nil},
		"another cluster leads":                 {&westLeads, []string{notLeading}},
		"the term of another cluster has ended": {&endedElsewhere, []string{notLeading}},
		"the term has ended":                    {&ended, []string{termIsOver}},
		"there is no Lease":                     {nil, nil},
	} {
		for kind, do := range map[string]string{
			"writes": aConfig + " {" + led + "}", "schedules": "create jobs", "locks": "create leases " + foreign,
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				ns, want := newNamespace(t), test.want
				fencing := map[string]v1alpha1.Fencing{"writes": ledConfigMaps, "schedules": allJobs, "locks": lockIn(ns)}[kind]
				fencing.Enforcement = v1alpha1.EnforcementWarn
				if test.lease == nil && kind != "locks" {
					want = []string{noLeader}
				}
				fences(t, fencing, map[string]*state{ns: test.lease})
				eventually(t, "the warnings are these", func(ctx context.Context) error {
					warned.taken()
					name := fmt.Sprintf("object-%d", time.Now().UnixNano())
					if kind == "locks" {
						name = "stock"
						defer func() { _ = send(ctx, administrator(t), ns, name, "delete leases") }()
					}
					if err := send(ctx, client, ns, name, do); err != nil {
						return err
					}
					if got := warned.taken(); !slices.EqualFunc(got, want, strings.Contains) {
						return fmt.Errorf("the warnings are %q", got)
					}
					return nil
				})
			})
		}
	}
}

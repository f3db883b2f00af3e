package guard_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// attempt is what a caller tries, after the reader has stored something: nothing, a Lease or a registration.
type attempt struct {
	stored, do string
	// The answers to an administrator, to the hub's account, to the reader, and to everybody else.
	admin, hub, reader, others string
}

// hubOnly is an attempt that only the hub may make, and whoever may do everything.
func hubOnly(stored, do string) attempt {
	return attempt{stored: stored, do: do, reader: notTheHub, others: notTheHub}
}

// toNobody is an attempt that the hub may not make either.
func toNobody(stored, do, answer string) attempt {
	return attempt{stored: stored, do: do, admin: answer, hub: answer, reader: notTheHub, others: notTheHub}
}

// patching is an attempt for which the hub has no right by RBAC.
func patching(do string) attempt {
	return attempt{stored: managed, do: do, hub: rbac, reader: rbac, others: notTheHub}
}

const (
	managed    = "create leases"
	unmanaged  = "create leases " + foreign
	registered = "create registrations"
	// empty has no spec.
	empty   = "create leases " + `{"metadata":{"labels":null,"annotations":null},"spec":null}`
	renewal = `{"spec":{"renewTime":"2026-01-01T00:00:00.000000Z"}}`
)

func TestGuard_OnlyTheHubWritesLeases(t *testing.T) {
	west := `{"spec":{"holderIdentity":"west.default"}}`
	callers(t, map[string]attempt{
		"a Lease is created": hubOnly("", managed),
		"a Lease is created with the label only": toNobody("", managed+` {"metadata":{"annotations":null}}`,
			noCluster),
		"a Lease is created with annotations only": hubOnly("", managed+` {"metadata":{"labels":null}}`),
		"a Lease is created by an update":          hubOnly("", "put leases"),
		"a Lease is applied":                       {do: "apply leases", hub: rbac, reader: rbac, others: notTheHub},
		"a Lease is renewed":                       hubOnly(managed, "update leases "+renewal),
		"another holder by server-side apply":      patching("apply leases " + west),
		"no holder": hubOnly(managed,
			`update leases {"spec":{"holderIdentity":"","leaseTransitions":1001}}`),
		"a foreign Lease gets the label": toNobody(unmanaged,
			`update leases {"metadata":{"labels":{"leasecast.dev/managed":"true"}}}`, noCluster),
		"a foreign Lease gets an annotation": hubOnly(unmanaged,
			`update leases {"metadata":{"annotations":{"leasecast.dev/cluster":"east.default"}}}`),
		"a Lease loses its label": hubOnly(managed, `update leases {"metadata":{"labels":null}}`),
		"a Lease loses all marks": hubOnly(managed, "update leases "+foreign),
		"a Lease is deleted":      hubOnly(managed, "delete leases"),
		"Leases are deleted as a collection": {
			stored: managed, do: "collection leases", hub: rbac, reader: rbac, others: notTheHub},
		"the epoch rises": hubOnly(managed, `update leases {"spec":{"leaseTransitions":1001}}`),
		"the epoch falls": toNobody(managed, `update leases {"spec":{"leaseTransitions":999}}`, epochFell),
		"the epoch falls as the marks are removed": toNobody(managed,
			`update leases {"metadata":{"labels":null,"annotations":null},"spec":{"leaseTransitions":999}}`, epochFell),
		"the epoch falls as a mark is added": toNobody(unmanaged, `update leases {"metadata":{"annotations":`+
			`{"leasecast.dev/cluster":"east.default"}},"spec":{"leaseTransitions":999}}`, epochFell),
		"the epoch is removed":        toNobody(managed, `update leases {"spec":{"leaseTransitions":null}}`, incomplete),
		"a Lease without an epoch":    toNobody("", managed+` {"spec":{"leaseTransitions":null}}`, incomplete),
		"a Lease without a holder":    toNobody("", managed+` {"spec":{"holderIdentity":null}}`, incomplete),
		"a Lease without a renewTime": toNobody("", managed+` {"spec":{"renewTime":null}}`, incomplete),
		"a Lease without a duration":  toNobody("", managed+` {"spec":{"leaseDurationSeconds":null}}`, incomplete),
		"a Lease without its cluster": toNobody("",
			managed+` {"metadata":{"annotations":{"leasecast.dev/cluster":null}}}`, noCluster),
		"a Lease with an empty cluster": toNobody("",
			managed+` {"metadata":{"annotations":{"leasecast.dev/cluster":""}}}`, noCluster),
		"a foreign Lease is created":         {do: unmanaged},
		"an empty foreign Lease is created":  {do: empty},
		"the count of a foreign Lease falls": {stored: unmanaged, do: `update leases {"spec":{"leaseTransitions":999}}`},
		"a foreign Lease is deleted":         {stored: unmanaged, do: "delete leases"},
		"foreign Leases are a collection":    {stored: unmanaged, do: "collection leases", hub: rbac, reader: rbac},
		"a foreign Lease gets marks of others": {stored: unmanaged, do: `update leases ` +
			`{"metadata":{"labels":{"leasecast.dev":"a"},"annotations":{"x.leasecast.dev/cluster":"a"}}}`},
		"an empty foreign Lease becomes a Lease": hubOnly(empty, `update leases `+merged(renewal,
			`{"metadata":{"labels":{"leasecast.dev/managed":"true"},"annotations":{"leasecast.dev/cluster":"a"}},`+
				`"spec":{"holderIdentity":"","leaseDurationSeconds":15,"leaseTransitions":1}}`)),
	})
}

func TestGuard_OnlyItsReaderWritesARegistration(t *testing.T) {
	created := func(change string) attempt {
		return attempt{do: registered + change, admin: notTheReader, hub: notTheReader, others: notTheReader}
	}
	toAll := func(stored, do, answer string) attempt {
		return attempt{stored: stored, do: do, admin: answer, hub: answer, reader: answer, others: answer}
	}
	identity := func(change string) attempt {
		return attempt{stored: registered, do: "update registrations " + change,
			admin: identified, hub: identified, reader: identified, others: notTheReader}
	}
	byReader := func(do string) attempt { return attempt{stored: registered, do: do, others: notTheReader} }
	withoutRBAC := func(do string) attempt {
		return attempt{stored: registered, do: do, hub: rbac, reader: rbac, others: notTheReader}
	}
	callers(t, map[string]attempt{
		"it is created": created(""),
		"it is created by an update": {
			do: "put registrations", admin: notTheReader, hub: notTheReader, others: notTheReader},
		"without an account": toAll("", registered+
			` {"metadata":{"annotations":{"reader.leasecast.dev/account":null}}}`, incompleteReader),
		"without a finalizer": toAll("", registered+` {"metadata":{"finalizers":null}}`, incompleteReader),
		"with an owner, which would delete it": toAll("", registered+
			` {"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"a","uid":"b"}]}}`, incompleteReader),
		"without an identity": toAll("", registered+` {"spec":{"holderIdentity":null}}`, incompleteReader),
		"with a label of another value": toAll("", registered+
			` {"metadata":{"labels":{"reader.leasecast.dev/registration":"yes"}}}`, incompleteReader),
		"it is confirmed":               byReader("update registrations " + renewal),
		"a term is released":            byReader("update registrations " + annotations("released", "{}")),
		"a term is released by a patch": withoutRBAC("merge registrations " + annotations("released", "{}")),
		"its finalizer is removed":      byReader(`update registrations {"metadata":{"finalizers":null}}`),
		"it gets another account":       identity(annotations("account", "erin")),
		"it loses its account":          identity(`{"metadata":{"annotations":{"reader.leasecast.dev/account":null}}}`),
		"it gets other namespaces":      identity(annotations("namespaces", "*")),
		"its label gets another value":  identity(`{"metadata":{"labels":{"reader.leasecast.dev/registration":"no"}}}`),
		"it loses its label": toAll(registered,
			`update registrations {"metadata":{"labels":null}}`, becameAnother),
		"a foreign Lease becomes one": toAll(unmanaged,
			"update leases "+encoded(object{"metadata": newRegistration().ObjectMeta}), becameAnother),
		"it is deleted":                 byReader("delete registrations"),
		"it is deleted as a collection": withoutRBAC("collection registrations"),
		"a foreign Lease gets an annotation of one": {stored: unmanaged,
			do: `update leases {"metadata":{"annotations":{"reader.leasecast.dev/account":"a"}}}`},
	})
}

// callers has callers of all kinds try everything. A rejected request changes nothing.
func callers(t *testing.T, attempts map[string]attempt) {
	parallel(t)
	ns := newNamespace(t)
	admin, asReader := administrator(t), impersonating(t, server.AdminConfig(), reader)
	toAdmin := func(a attempt) string { return a.admin }
	toHub := func(a attempt) string { return a.hub }
	toOthers := func(a attempt) string { return a.others }
	for who, caller := range map[string]struct {
		client *kubernetes.Clientset
		answer func(attempt) string
	}{
		"an administrator":               {admin, toAdmin},
		"cluster-admin":                  {account(t, "clara", everyResource, everyURL), toAdmin},
		"the hub":                        {account(t, "leasecast-hub", hubRules(t)...), toHub},
		"a reader":                       {readerAccount(t), func(a attempt) string { return a.reader }},
		"another reader":                 {account(t, "other-reader", onLeases("*")), toOthers},
		"an editor of the namespace":     {tenant(t, "erin", "edit", ns), toOthers},
		"cluster-admin in the namespace": {tenant(t, "omar", "cluster-admin", ns), toOthers},
		"an owner of all resources":      {account(t, "olga", everyResource), toOthers},
		"the hub's role in the namespace": {tenant(t, "hugo", "leasecast-system:leasecast-hub", ns), func(a attempt) string {
			if a.hub == rbac {
				return rbac
			}
			return a.others
		}},
	} {
		n := 0
		for what, a := range attempts {
			n++
			name := fmt.Sprintf("lease-%d", n)
			t.Run(who+"/"+what, func(t *testing.T) {
				t.Cleanup(func() { clears(t, ns) })
				if a.stored != "" {
					mustSend(t, asReader, ns, name, a.stored)
				}
				before := versionOf(t, ns, name)
				mustAnswer(t, caller.client, ns, name, a.do, caller.answer(a))
				if after := versionOf(t, ns, name); caller.answer(a) != allowed && after != before {
					t.Errorf("a rejected request changed the version %q to %q", before, after)
				}
			})
		}
	}
}

// readerAccount is the account that registrations in these tests name.
func readerAccount(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	return account(t, "reader", onLeases("get", "watch", "create", "update", "delete"))
}

// versionOf returns the resourceVersion of a Lease, or nothing.
func versionOf(t *testing.T, ns, name string) string {
	t.Helper()
	l, err := administrator(t).CoordinationV1().Leases(ns).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return l.ResourceVersion
}

// clears deletes all Leases of a namespace.
func clears(t *testing.T, ns string) {
	t.Helper()
	admin, ctx := administrator(t), context.Background()
	all := musttest.Get(admin.CoordinationV1().Leases(ns).List(ctx, metav1.ListOptions{}))(t)
	for i := range all.Items {
		requests := "delete leases"
		if len(all.Items[i].Finalizers) > 0 {
			requests = `update leases {"metadata":{"finalizers":null}} ; ` + requests
		}
		if err := send(ctx, admin, ns, all.Items[i].Name, requests); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
}

// annotations changes annotations of a registration.
func annotations(of ...string) string {
	all := object{}
	for i := 0; i < len(of); i += 2 {
		all["reader.leasecast.dev/"+of[i]] = of[i+1]
	}
	return encoded(object{"metadata": object{"annotations": all}})
}

// list returns n namespaces, in order.
func list(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("ns-%05d", i))
	}
	return strings.Join(all, ",")
}

func TestGuard_BoundsARegistration(t *testing.T) {
	parallel(t)
	ns := newNamespace(t)
	stored := readerAccount(t)
	many := func(n int) object {
		all := object{}
		for i := range n {
			all[fmt.Sprintf("example.com/%d", i)] = "x"
		}
		return all
	}
	text := func(n int) string { return strings.Repeat("x", n) }
	metadata := func(key string, value any) string { return encoded(object{"metadata": object{key: value}}) }
	owner := []any{object{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "b"}}
	identity := encoded(object{"spec": object{"holderIdentity": text(1 << 20)}})
	finalizers := []string{"reader.leasecast.dev/registration", "example.com/a", "example.com/b"}
	for name, test := range map[string]struct{ change, creates, updates string }{
		"what a reader writes":               {"", allowed, allowed},
		"17 labels":                          {metadata("labels", many(16)), oversized, oversized},
		"9 annotations":                      {metadata("annotations", many(6)), oversized, oversized},
		"an annotation of 1025 characters":   {metadata("annotations", object{"a": text(1025)}), oversized, oversized},
		"released terms of more than 96 KiB": {annotations("released", text(96<<10+1)), oversized, oversized},
		"3 finalizers":                       {metadata("finalizers", finalizers), oversized, oversized},
		"an owner":                           {metadata("ownerReferences", owner), incompleteReader, oversized},
		"an identity of 1 MiB":               {identity, oversized, identified},
		"1001 namespaces":                    {annotations("namespaces", list(1001)), oversized, identified},
		"1000 namespaces":                    {annotations("namespaces", list(1000)), allowed, identified},
		"a duration of more than an hour":    {`{"spec":{"leaseDurationSeconds":3601}}`, oversized, oversized},
	} {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(func() { clears(t, ns) })
			mustAnswer(t, stored, ns, "created", registered+" "+test.change, test.creates)
			mustSend(t, stored, ns, "updated", registered)
			mustAnswer(t, stored, ns, "updated", "update registrations "+test.change, test.updates)
		})
	}
}

func TestGuard_ReaderNamesOnlyNamespacesThatItMayWatch(t *testing.T) {
	parallel(t)
	own := newNamespace(t)
	var others []string // in order, after its own
	for range 17 {
		others = append(others, newNamespace(t))
	}
	nora, mary := tenant(t, "nora", "edit", own), tenant(t, "mary", "edit", append(others, own)...)
	anywhere := account(t, "anywhere", onLeases("*"))
	accounts := map[*kubernetes.Clientset]string{
		nora: "nora", mary: "mary", anywhere: "system:serviceaccount:leasecast-system:anywhere",
	}
	join := func(namespaces []string, more ...string) string {
		return strings.Join(append(namespaces[:len(namespaces):len(namespaces)], more...), ",")
	}
	for name, test := range map[string]struct {
		writer *kubernetes.Clientset
		claims string
		want   string
	}{
		"an editor names its namespace":                    {nora, own, allowed},
		"an editor names another namespace":                {nora, others[0], notWatching},
		"an editor names another namespace, too":           {nora, own + "," + others[0], notWatching},
		"an editor names a missing namespace":              {nora, "no-such-namespace", notWatching},
		"an editor names all namespaces":                   {nora, "*", notWatching},
		"an editor names all namespaces and its own":       {nora, "*," + own, notWatching},
		"an editor names an empty namespace":               {nora, own + ",,", notWatching},
		"an editor of 18 names 16":                         {mary, join(others[:16]), allowed},
		"an editor of 18 names 17":                         {mary, join(others[:17]), notWatching},
		"the last of 16 is missing":                        {mary, join(others[:15], "zzz"), notWatching},
		"the last but one of 16 is missing":                {mary, join(others[:14], "zzy", others[14]), notWatching},
		"a reader of the whole cluster names all":          {anywhere, "*", allowed},
		"a reader of the whole cluster names missing ones": {anywhere, list(100), allowed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(func() { clears(t, own) })
			claims := annotations("account", accounts[test.writer], "namespaces", test.claims)
			mustAnswer(t, test.writer, own, "reader-1", registered+" "+claims, test.want)
		})
	}
}

func TestGuard_ReaderThatMayNoLongerWatchCannotConfirm(t *testing.T) {
	parallel(t)
	ns, admin := newNamespace(t), administrator(t)
	irma := tenant(t, "irma", "edit", ns)
	mustSend(t, irma, ns, "reader-1", registered+" "+annotations("account", "irma", "namespaces", ns))
	t.Cleanup(func() { clears(t, ns) })
	bindings := admin.RbacV1().RoleBindings(ns)
	musttest.Do(t, bindings.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	writes := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "writes-" + ns}, Rules: []rbacv1.PolicyRule{onLeases("get", "list", "update")},
	}
	_ = musttest.Get(admin.RbacV1().ClusterRoles().Create(t.Context(), writes, metav1.CreateOptions{}))(t)
	tenant(t, "irma", writes.Name, ns)
	eventually(t, "the confirmation is rejected", func(ctx context.Context) error {
		confirm := "update registrations " + renewal
		return expect(send(ctx, irma, ns, "reader-1", confirm), notWatching)
	})
}

// Cleaning up deletes Leases. The finalizer of a registration keeps it until the reader or the hub removes that.
func TestGuard_NamespaceIsDeletedWithItsLeases(t *testing.T) {
	parallel(t)
	admin, editor := administrator(t), account(t, "lease-editor", onLeases("*"))
	ns := newDoomedNamespace(t, "tenant-")
	mustSend(t, admin, ns, "free", managed)
	mustSend(t, admin, ns, "held", managed+` {"metadata":{"finalizers":["example.com/stay"]}}`)
	mustSend(t, impersonating(t, server.AdminConfig(), reader), ns, "reader-1", registered)
	musttest.Do(t, admin.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}))
	eventually(t, "everybody may delete the Lease", func(ctx context.Context) error {
		return send(ctx, editor, ns, "held", "delete leases")
	})
	eventually(t, "the registration is being deleted", func(ctx context.Context) error {
		l, err := admin.CoordinationV1().Leases(ns).Get(ctx, "reader-1", metav1.GetOptions{})
		if err == nil && l.DeletionTimestamp == nil {
			err = fmt.Errorf("it is not")
		}
		return err
	})
	const free = `update leases {"metadata":{"finalizers":null}}`
	mustAnswer(t, editor, ns, "held", free, notTheHub)
	mustAnswer(t, editor, ns, "reader-1", free, notTheReader)
	hub := account(t, "leasecast-hub", hubRules(t)...)
	mustSend(t, hub, ns, "held", free)
	mustSend(t, hub, ns, "reader-1", free)
	eventually(t, "the namespace is gone", func(ctx context.Context) error {
		_, err := admin.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})
}

// Heartbeats of nodes do not depend on the policies. Readers may run in these namespaces.
func TestGuard_NamespacesOfTheClusterHaveRegistrationsOnly(t *testing.T) {
	parallel(t)
	editor := account(t, "lease-editor", onLeases("*"))
	for _, ns := range []string{metav1.NamespaceSystem, metav1.NamespacePublic, "kube-node-lease"} {
		t.Run(ns, func(t *testing.T) {
			mustSend(t, editor, ns, "leasecast", "create leases ; delete leases")
			asReader := impersonating(t, server.AdminConfig(), reader)
			mustSend(t, asReader, ns, "reader-1", registered)
			mustAnswer(t, editor, ns, "reader-1", "delete registrations", notTheReader)
			mustSend(t, asReader, ns, "reader-1", `update leases {"metadata":{"finalizers":null}} ; delete leases`)
		})
	}
}

// An API server that elects holders by itself must leave these Leases alone. It is system:masters, so it may publish,
// and it elects whom a tenant's LeaseCandidate names. With each holder it sets these fields, which others drop.
func TestGuard_RejectsCoordinatedElection(t *testing.T) {
	f := fleet.NewWith(t, fleet.Options{Uninstalled: true, APIServerFlags: []string{
		"--feature-gates=CoordinatedLeaderElection=true", "--runtime-config=coordination.k8s.io/v1beta1=true",
	}})
	client := clientFor(t, f.Hub().AdminConfig())
	eventually(t, "the guard is in force", newHub(client, "fleet").guards)
	const strategy, holder = `"strategy":"OldestEmulationVersion"`, `"preferredHolder":""`
	for name, test := range map[string]struct{ spec, want string }{
		"without-either":     {"", allowed},
		"a-strategy":         {strategy, elected},
		"a-preferred-holder": {holder, elected},
		"both":               {strategy + `,"preferredHolder":"west.default"`, elected},
	} {
		mustAnswer(t, client, "default", name, managed+` {"spec":{`+test.spec+`}}`, test.want)
	}
}

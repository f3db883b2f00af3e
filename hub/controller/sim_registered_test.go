package controller

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

// podSpace is where readers keep their registrations.
const podSpace = "pods"

// registration is what a registered reader keeps: it registers, then lists the Leases, and only then
// trusts any; it stops in a term some time after it has learned of its end, and
// releases it after that.
type registration struct {
	r      *reader
	says   lease.Registration
	stored *coordinationv1.Lease // nil: there is none
	until  lease.Reading         // as last confirmed
	sent   time.Duration         // boot reading of the last confirmation
	made   time.Duration         // true time
	trusts bool
	over   map[string]int64 // what has ended, by namespace
	may    map[string]int64 // of that, what may be released
	unsure bool             // an update got no answer
	*item                   // has done what there is to do, one thing at a time
}

// drawRegistered draws what concerns registered readers. An acknowledgement takes a tenure that has lasted
// for a while, so in most of these worlds the hub itself has no trouble.
func (w *world) drawRegistered() {
	w.registered = w.between(3*time.Second, 8*time.Second).Truncate(time.Second)
	w.faults += 15 * time.Second
	w.raised = 10
	if w.chance(0.7) {
		w.kinds = slices.DeleteFunc(w.kinds, func(f fault) bool {
			return strings.Contains(f.name, "replica") || strings.Contains(f.name, "hub") || f.loses || f.clock
		})
		w.lateHub, w.stopAtReading = 0, w.stopAtReading/10
		for _, p := range []*float64{&w.late, &w.veryLate, &w.loss, &w.busy, &w.broken, &w.lateWatch} {
			*p /= 4
		}
	}
}

// late is what a reader still does in a term after it has learned of its end.
type late struct {
	namespace string
	permit    lease.Permit
	until     lease.Reading
}

func (l late) holds(now lease.Reading) bool { return l.permit.Holds(now) && within(l.until, now) }

func within(until, now lease.Reading) bool {
	return now.Boot < until.Boot && now.Wall.Before(until.Wall)
}

// may reports whether the reader acts by a permit now.
func (r *reader) may(p lease.Permit) bool {
	now := r.host.read(r.w.now)
	return r.alive && p.Holds(now) && (r.reg == nil || r.reg.trusts && within(r.reg.until, now))
}

// stop has the reader end what it does in a namespace by a permit, which takes a while.
func (r *reader) stop(key types.NamespacedName, p lease.Permit) {
	if r.reg == nil || !r.may(p) || r.w.extends { // by an edited Lease a late reader acts for long: see hub/README.md
		return
	}
	l := &late{key.Namespace, p, r.reg.until}
	r.lates = append(r.lates, l)
	r.after(r.w.between(0, 300*time.Millisecond), func() {
		i := slices.Index(r.lates, l)
		r.lates = slices.Delete(r.lates, i, i+1)
		r.w.say(r.name, "%s: has stopped in epoch %d", key, l.permit.Epoch)
		r.reg.add()
	})
}

// ended notes which terms are over for good, by a Lease that the reader believes.
func (r *reader) ended(c lease.Content) {
	if r.reg != nil && !c.LeadsHere() && c.Epoch > 0 &&
		!c.RenewTime.After(r.host.read(r.w.now).Wall.Add(r.w.timings.Skew)) {
		r.reg.over[c.Namespace] = max(r.reg.over[c.Namespace], c.Epoch-1)
		r.reg.add()
	}
}

func (r *reader) register() {
	r.reg = &registration{r: r, over: map[string]int64{}, may: map[string]int64{}}
	r.reg.item = newItem(r.proc, r.reg.next)
	r.reg.add()
}

// releasable is what nothing is under way of any more, until the next call.
func (g *registration) releasable() map[string]int64 {
	out := g.may
	clear(out)
	maps.Copy(out, g.over)
	keep := func(namespace string) {
		if had, ok := g.says.Released[namespace]; ok {
			out[namespace] = had
		} else {
			delete(out, namespace)
		}
	}
	for _, l := range g.r.lates {
		keep(l.namespace)
	}
	for key, p := range g.r.permits {
		if epoch, over := g.over[key.Namespace]; over && p.Epoch <= epoch && g.r.may(p) {
			keep(key.Namespace)
		}
	}
	return out
}

func (g *registration) api(namespace string) coordinationclient.LeaseInterface {
	return leaseClient{p: g.r.proc, server: &g.r.m.leaseServer, timeout: g.r.w.timings.Timeout,
		list: 3 * time.Second}.Leases(namespace)
}

// next does the next thing that there is to do, if any.
func (g *registration) next() {
	var err error
	wait := g.sent + g.says.Duration/3 - g.r.host.read(g.r.w.now).Boot
	switch {
	case g.stored == nil:
		err = g.create()
	case !g.trusts:
		err = g.list()
	case wait > 0 && maps.Equal(g.releasable(), g.says.Released):
		g.addAfter(wait)
		return
	default:
		err = g.confirm()
	}
	if err == nil {
		g.add()
		return
	}
	g.r.w.say(g.r.name, "registration: %v", err)
	g.addAfter(100 * time.Millisecond)
}

// write writes what the reader says into a Lease. Mostly only the time differs from what is there.
func (g *registration) write(l *coordinationv1.Lease, differs bool) lease.Reading {
	now := g.r.host.read(g.r.w.now)
	g.says.Confirmed = now.Wall
	if !differs {
		l.Spec.RenewTime = &metav1.MicroTime{Time: now.Wall.Truncate(time.Microsecond)}
		return now
	}
	if err := wire.WriteRegistration(g.says, l); err != nil {
		panic(err)
	}
	return now
}

func (g *registration) create() error {
	w := g.r.w
	w.identities++
	id := "reader-" + strconv.Itoa(w.identities)
	g.says = lease.Registration{Identity: id, Duration: w.registered, Account: "reader"}
	if w.chance(0.3) {
		g.says.Namespaces = w.spaces
	}
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: podSpace, Name: id}}
	sent := g.write(l, true)
	stored, err := g.api(podSpace).Create(g.r.ctx, l, metav1.CreateOptions{})
	if err != nil {
		return err // the next try has another name
	}
	g.take(stored, sent)
	g.made = w.now
	return nil
}

// list reads the Leases once consistently, and watches from there: so either the hub finds the
// registration, or this finds the revocation, and nothing older comes after it.
func (g *registration) list() error {
	r, server := g.r, &g.r.m.leaseServer
	if r.muted {
		return context.DeadlineExceeded // no answer comes in time
	}
	wt := server.watcher(r.proc, r.w.lateWatch, managed)
	wt.seen, wt.gone, wt.listing, wt.consistent = r.seen, r.gone, true, true
	var state map[types.NamespacedName]*coordinationv1.Lease
	err := invoke(r.proc, &server.machine, 3*time.Second, func() error {
		state, wt.next, wt.since = maps.Clone(server.leases), len(server.log), server.restored
		return nil
	})
	if err != nil || g.stored == nil {
		wt.stop()
		return err
	}
	r.wt, g.trusts = wt, true
	for _, key := range sortedKeys(state) {
		wt.show(key, state[key])
	}
	for _, key := range sortedKeys(r.rules) {
		if state[key] == nil {
			r.gone(key)
		}
	}
	wt.listing = false
	if wt.since != server.restored {
		wt.relist(0)
	}
	wt.kick()
	return nil
}

func (g *registration) confirm() error {
	differs := g.unsure
	if g.unsure {
		found, err := g.api(podSpace).Get(g.r.ctx, g.stored.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && found.UID != g.stored.UID {
			g.lose()
			return nil
		}
		if err != nil {
			return err
		}
		g.stored, g.unsure = found, false
	}
	l := new(*g.stored)
	before := g.says.Released
	if now := g.releasable(); !maps.Equal(now, before) {
		g.says.Released, differs = maps.Clone(now), true
	}
	sent := g.write(l, differs)
	stored, err := g.api(podSpace).Update(g.r.ctx, l, metav1.UpdateOptions{})
	switch {
	case err == nil && within(g.until, g.r.host.read(g.r.w.now)):
		g.take(stored, sent)
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err) && !g.unsure:
		g.lose()
	default:
		g.says.Released, g.unsure = before, true
		return err
	}
	return nil
}

func (g *registration) take(stored *coordinationv1.Lease, sent lease.Reading) {
	g.stored, g.unsure, g.sent = stored, false, sent.Boot
	g.until = lease.Reading{Wall: sent.Wall.Add(g.says.Duration), Boot: sent.Boot + g.says.Duration}
}

// lose gives up what the registration permitted. Another one is made.
func (g *registration) lose() {
	r := g.r
	r.w.say(r.name, "its registration is lost")
	for _, key := range sortedKeys(r.rules) {
		r.stop(key, r.permits[key])
		r.permits[key] = lease.Permit{}
	}
	g.stored, g.trusts, g.unsure = nil, false, false
	if r.wt != nil {
		r.wt.stop()
	}
}

// leave ends the process in order: first its work, then its registration.
func (r *reader) leave(then func()) {
	g := r.reg
	r.w.say(r.name, "leaves")
	clear(r.permits)
	if g == nil || g.stored == nil || g.running || len(r.lates) > 0 {
		then() // not in order
		return
	}
	name, uid := g.stored.Name, g.stored.UID
	g.trusts, g.queue.ended = false, true
	r.spawn(func() {
		_ = g.api(podSpace).Delete(r.ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		r.w.after(0, then)
	})
}

func isRegistration(l *coordinationv1.Lease) bool { return l.Labels[v1alpha1.ReaderLabel] == "true" }

// copyKeys are the Leases that are no registrations: the guard keeps everybody else from those.
func (s *leaseServer) copyKeys() (keys []types.NamespacedName) {
	for _, key := range sortedKeys(s.leases) {
		if !isRegistration(s.leases[key]) {
			keys = append(keys, key)
		}
	}
	return keys
}

// watchReaders tells a replica of registrations, and of their ends as opposed to their loss.
func (m *member) watchReaders(
	p *proc, lateness float64, seen func(*coordinationv1.Lease), ended func(types.UID),
) *watcher {
	wt := m.watcher(p, lateness, isRegistration)
	wt.seen, wt.readers = seen, true
	wt.gone = func(types.NamespacedName) {
		if !wt.replacing {
			ended(wt.last.UID)
		}
	}
	wt.relist(m.w.staleBy())
	return wt
}

// noteHandover counts the terms that began before the bound of the last one.
func (h *hubServer) noteHandover(old, now *v1alpha1.NamespaceLeader) {
	if old == nil || now == nil {
		return
	}
	was, is := old.Spec, now.Spec
	if was.RevokedEpoch == 0 && is.RevokedEpoch != 0 {
		h.w.oracle.revoked++
	}
	if was.RevokedEpoch != 0 && is.State == v1alpha1.StateLeading && is.Epoch > was.Epoch && was.NotBefore != nil &&
		h.w.start.Add(h.w.now+h.w.timings.Skew).Before(was.NotBefore.Time) {
		h.w.oracle.acknowledged++
	}
}

// noteRevocation remembers when a leader's Lease last gave way to nobody's.
func (m *member) noteRevocation(old, obj *coordinationv1.Lease) {
	if len(m.w.locks) > 0 && !isRegistration(obj) {
		m.w.after(0, m.restartStocks)
	}
	if old == nil || isRegistration(obj) || !m.w.acknowledged {
		return
	}
	was, _ := wire.Read(old)
	is, _ := wire.Read(obj)
	if was.LeadsHere() && is.Holder == "" {
		m.revoked = m.w.now
	}
}

// promised reports whether a restore to the state of an earlier time is within the promise: not when it
// undoes a revocation faster than terms run out. Readers that registered
// so shortly before that no replica knows of them are taken back with it.
func (w *world) promised(m *member, then time.Duration) bool {
	if !w.acknowledged {
		return true
	}
	if m.revoked > then && w.now-m.revoked < w.timings.Duration+w.timings.Skew+time.Second {
		return false
	}
	for i, r := range w.readers {
		if r.m != m || r.reg == nil || r.reg.stored == nil || r.reg.made < then || w.knownToAll(m, r.reg.stored) {
			continue
		}
		r.crash()
		w.readers[i] = w.newReader(m, r.number, r.host)
	}
	return true
}

func (w *world) knownToAll(m *member, obj *coordinationv1.Lease) bool {
	key := types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name}
	for _, wt := range m.watchers {
		if wt.p.alive && wt.readers && wt.view[key] == nil {
			return false
		}
	}
	return true
}

// handOver raises one cluster above all others, now and then.
func (w *world) handOver() {
	w.soon(time.Second, 5*time.Second, func() {
		w.editCluster(w.someCluster(), func(c *simCluster) { w.raised++; c.priority, c.label = w.raised, true })
		w.handOver()
	})
}

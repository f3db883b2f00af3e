package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
)

// tell judges what the guestbooks did, prints the timeline and writes the file.
func (p *play) tell() error {
	acts, err := p.d.Acts()
	if err != nil {
		return err
	}
	verdicts := harness.Judge(acts)
	p.say("Timeline, in seconds since the start of the demo")
	for _, h := range p.timeline(acts) {
		p.print(fmt.Sprintf("  %7.2f  %s\n", p.since(h.at), h.text))
	}
	p.say("Who might act by its Lease (░), and who did (█)")
	p.print(p.bars(acts))
	p.print(p.gaps(verdicts))

	f := report(p.result, verdicts)
	if err := f.write(); err != nil {
		return err
	}
	p.print(fmt.Sprintf("\n  %d acts of three guestbooks judged: %d overlaps. Results are in out/demo.json, logs in out/demo.\n", len(acts), f.Overlaps))
	return flaws(p.result, verdicts)
}

// timeline merges what the demo did, what the hub decided and what the guestbooks did.
func (p *play) timeline(acts []harness.Act) []headline {
	lines := slices.Clone(p.headlines)
	lines = append(lines, decisions(p.Records.Seen(), p.since)...)
	now := harness.Now().Boot
	for _, namespace := range namespaces {
		all := stints(acts, namespace)
		for i, s := range all {
			lines = append(lines, headline{s.from, fmt.Sprintf("%-7s %s acts for the first time in epoch %d", namespace, s.cluster, s.epoch)})
			if i+1 < len(all) {
				lines = append(lines, headline{s.to, fmt.Sprintf("%-7s %s has acted for the last time, after %d acts", namespace, s.cluster, s.acts)})
			}
		}
		for member, copies := range p.Leases {
			for _, s := range permits(copies.Seen(), namespace) {
				if s.to < now {
					lines = append(lines, headline{s.to, fmt.Sprintf("%-7s %s may act no longer, by its Lease", namespace, member)})
				}
			}
		}
	}
	slices.SortStableFunc(lines, func(a, b headline) int { return cmp.Compare(a.at, b.at) })
	return lines
}

// decisions are the changes of the hub's records.
func decisions(seen []harness.Sighting[*v1alpha1.NamespaceLeader], since func(time.Duration) float64) []headline {
	type decision struct {
		leader string
		phase  v1alpha1.RecordState
		epoch  int64
	}
	last := map[string]decision{}
	var lines []headline
	for _, s := range seen {
		record, namespace := s.Object.Spec, s.Object.Name
		d := decision{record.Leader, record.State, record.Epoch}
		if s.Gone || record.State == "" || d == last[namespace] {
			continue
		}
		last[namespace] = d
		text := fmt.Sprintf("%-7s hub: nobody leads (%s)", namespace, record.Reason)
		switch record.State {
		case v1alpha1.StateLeading:
			text = fmt.Sprintf("%-7s hub: %s leads in epoch %d (%s)", namespace, record.Leader, record.Epoch, record.Reason)
		case v1alpha1.StateDraining:
			text = fmt.Sprintf("%-7s hub: %s is being replaced (%s)", namespace, record.Leader, record.Reason)
			if record.NotBefore != nil {
				text += fmt.Sprintf("; %s is next, not before %.2f", record.Next, since(harness.BootOf(record.NotBefore.Time, s.At)))
			}
		}
		lines = append(lines, headline{s.At.Boot, text})
	}
	return lines
}

// step is the time that a column of the bars covers.
const step = 250 * time.Millisecond

// bars draws each namespace and member, below a ruler and the marks of what the demo did, from just before the
// first act on.
func (p *play) bars(acts []harness.Act) string {
	if len(acts) == 0 {
		return "  Nobody did.\n"
	}
	first := slices.MinFunc(acts, func(a, b harness.Act) int { return cmp.Compare(a.Begin, b.Begin) }).Begin
	from := p.zero + (first - p.zero - time.Second).Truncate(time.Second)
	now := harness.Now().Boot
	cells := int((now-from)/step) + 1
	marks := []rune(strings.Repeat(" ", cells))
	for _, h := range p.headlines {
		if h.at >= from {
			marks[min(cells-1, int((h.at-from)/step))] = '▼'
		}
	}
	indent := strings.Repeat(" ", 18)
	out := indent + ruler(from-p.zero, cells) + "\n" + indent + strings.TrimRight(string(marks), " ") + "\n"
	for _, namespace := range namespaces {
		label := namespace
		for _, s := range p.d.Fleet.Members() {
			var acted []span
			for _, a := range acts {
				if a.Namespace == namespace && a.Cluster == s.Name() {
					acted = append(acted, span{a.Begin, min(a.End, now)})
				}
			}
			might := permits(p.Leases[s.Name()].Seen(), namespace)
			out += fmt.Sprintf("  %-8s %-6s %s\n", label, s.Name(), bar(from, step, cells, might, acted))
			label = ""
		}
	}
	return out + fmt.Sprintf("%s(a column is %s; ▼ fault, repair, edit)\n", indent, step)
}

// ruler writes the seconds above the cells, every five.
func ruler(from time.Duration, cells int) string {
	const every = 5 * time.Second
	line := []rune(strings.Repeat(" ", cells+4))
	for s := (from + every - 1).Truncate(every); int((s-from)/step) < cells; s += every {
		copy(line[int((s-from)/step):], []rune(fmt.Sprintf("|%d", int(s.Seconds()))))
	}
	return strings.TrimRight(string(line), " ")
}

// gaps says how long nobody acted at each change.
func (p *play) gaps(verdicts []harness.Verdict) string {
	var out strings.Builder
	for _, v := range verdicts {
		for _, c := range v.Changes {
			fmt.Fprintf(&out, "\n  %-7s %s acted until %.2f, %s from %.2f: nobody for %.2f s", v.Namespace, c.From, p.since(c.Last), c.To, p.since(c.First), c.Gap().Seconds())
		}
	}
	return out.String() + "\n"
}

package inspect

import (
	"fmt"
	"slices"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// describe sets the texts of the node. l is one of its rows, held are its locks, w is what it waits for.
func (n *node) describe(l Lock, held []Lock, w Lock, suspect bool) {
	n.Width, n.Height = nodeWidth, nodeHeight
	n.Class = "node"
	n.describeOwner(l)
	if len(held) > 0 {
		n.Class += " holder"
		line := heldLine(held)
		if len(held) > 1 {
			line += fmt.Sprintf(" and %d more", len(held)-1)
		}
		n.addLine(line)
	}
	switch {
	case w.PID != 0:
		n.Class += " waiter"
		n.addLine(waitLine(w))
	case len(l.WaitsFor) > 0:
		n.Class += " waiter"
		n.Lines = append(n.Lines, "waits for something else")
		n.Title += "; waits for something that is no advisory lock"
	case len(held) == 0:
		n.Lines = append(n.Lines, "has no advisory lock")
	case l.State != "":
		n.addLine(stateLine(l))
	}
	if suspect {
		n.Class += " suspect"
		n.Title += "; suspect"
	}
}

// describeOwner adds who the session is to the name and the title.
func (n *node) describeOwner(l Lock) {
	n.Title = n.Name
	if n.id.gid != "" {
		n.Name += " " + clip(clean(n.id.gid), lineLength-len(n.Name))
		n.Title += " " + clean(n.id.gid)
	}
	if l.Application != "" {
		n.Name += " · " + clip(clean(l.Application), lineLength-len(n.Name)-6)
		n.Title += ", application " + clean(l.Application)
	}
	if l.User != "" {
		n.Title += ", user " + clean(l.User)
	}
}

// addLine adds a line to the node, as far as there is room, and all of it to the title.
func (n *node) addLine(line string) {
	n.Lines = append(n.Lines, clip(line, lineLength))
	n.Title += "; " + line
}

func waitLine(w Lock) string {
	line := "waits for " + w.Key.String()
	if w.Mode == advisory.Shared {
		line += " shared"
	}
	if w.Age > 0 {
		line += ", " + round(w.Age).String()
	}
	return line
}

func stateLine(l Lock) string {
	line := l.State
	if l.StateAge > 0 && l.PID != 0 {
		line += " for " + round(l.StateAge).String()
	}
	return line
}

// heldLine names one of the held locks: the first that others wait for, or the first.
func heldLine(held []Lock) string {
	shown := held[0]
	if i := slices.IndexFunc(held, func(h Lock) bool { return len(h.WaitedForBy) > 0 }); i >= 0 {
		shown = held[i]
	}
	line := "holds " + shown.Key.String()
	if shown.Mode == advisory.Shared {
		line += " shared"
	}
	return line
}

// clip shortens a text to n characters.
func clip(s string, n int) string {
	r := []rune(s)
	if len(r) <= max(n, 1) {
		return s
	}
	return string(r[:max(n-1, 1)]) + "…"
}

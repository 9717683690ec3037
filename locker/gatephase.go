package locker

// A gatePhase is what a gate does for the caller at the front of its queue.
type gatePhase uint8

const (
	gateIdle     gatePhase = 1 << iota // nothing
	gateAsking                         // it asks the server once
	gateHeld                           // this process holds the key
	gateChanging                       // it holds it, and a statement about it is under way
	gateWaiting                        // a session waits for the key on the server
	gatePolled                         // the key is tried now and then
	gatePolling                        // it is, and such a try is under way
)

func (p gatePhase) String() string {
	switch p {
	case gateIdle:
		return "idle"
	case gateAsking:
		return "asking"
	case gateHeld:
		return "held"
	case gateChanging:
		return "changing"
	case gateWaiting:
		return "waiting"
	case gatePolled:
		return "polled"
	case gatePolling:
		return "polling"
	}
	return "of no phase"
}

// is reports whether p is one of the given phases.
func (p gatePhase) is(any gatePhase) bool { return p&any != 0 }

// busy reports whether a statement about the key is under way. A probe does not count.
func (g *gate) busy() bool { return g.phase.is(gateAsking | gateChanging | gatePolling) }

// isPolled reports whether the key is tried now and then.
func (g *gate) isPolled() bool { return g.phase.is(gatePolled | gatePolling) }

// beginStatement marks that a statement about the key is under way.
func (g *gate) beginStatement() {
	switch g.phase {
	case gateIdle:
		g.phase = gateAsking
	case gatePolled:
		g.phase = gatePolling
	case gateHeld:
		g.phase = gateChanging
	default:
		illegal("beginStatement", g.phase.String())
	}
}

// endStatement marks that the statement about the key was answered, and wakes the calls that
// wait for that.
func (g *gate) endStatement() {
	switch g.phase {
	case gateAsking:
		g.phase = g.withoutHold()
	case gatePolling:
		g.phase = gatePolled
	case gateChanging:
		g.phase = gateHeld
	default:
		illegal("endStatement", g.phase.String())
	}
	g.l.wakeWatchers()
}

// withoutHold is the phase of a gate that holds nothing and sends nothing: a session whose wait
// is being cut may still wait.
func (g *gate) withoutHold() gatePhase {
	if g.waiter != nil {
		return gateWaiting
	}
	return gateIdle
}

// beginHold marks that this process holds the key by h.
func (g *gate) beginHold(h *hold) {
	if !g.phase.is(gateIdle | gateWaiting | gatePolled) {
		illegal("beginHold", g.phase.String())
	}
	g.phase, g.hold = gateHeld, h
	h.session.holds[g.key] = h
	g.l.held++
}

// endHold marks that this process holds the key no more: it is released or lost. The session
// of a lost hold keeps it on its list until the connection is closed.
func (g *gate) endHold() {
	switch g.phase {
	case gateHeld:
		g.phase = g.withoutHold()
	case gateChanging:
		g.phase = gateAsking // until the statement is answered
	default:
		illegal("endHold", g.phase.String())
	}
	g.hold = nil
	g.l.held--
}

// beginPolling has the key tried now and then. It may be on the list still, from an earlier wait.
func (g *gate) beginPolling() {
	if g.phase != gateIdle {
		illegal("beginPolling", g.phase.String())
	}
	g.phase = gatePolled
	if !g.listed {
		g.listed = true
		g.l.polled = append(g.l.polled, g)
	}
}

// endPolling ends that, if it is so. The gate stays on the list until its turn comes.
func (g *gate) endPolling() {
	switch g.phase {
	case gatePolled:
		g.phase = gateIdle
	case gatePolling:
		g.phase = gateAsking
	}
}

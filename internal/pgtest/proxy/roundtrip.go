package proxy

// A trip follows the messages on one connection, to know which side must send next. The order of
// messages does not show that: the answers to the first part of a pipeline may come before its last
// part.
type trip struct {
	open     bool // the client has sent a message, and is not answered completely
	answered bool // the server has begun to answer: the trip is counted
	pending  int  // ReadyForQuery messages that are to come
	flush    bool // the client sent a Flush, to which no ReadyForQuery belongs
	flushed  bool // and the server has answered since
}

// up handles a message of the client and reports whether it begins a trip.
func (t *trip) up(m Message) (begins bool) {
	if m.Type == 'X' { // Terminate is not answered
		return false
	}
	begins = !t.open || t.flushed
	t.open = true
	if t.flushed {
		t.flushed, t.answered = false, false
	}
	switch m.Type {
	case 'Q', 'S', 'F': // Query, Sync, FunctionCall
		t.pending++
	case 'H': // Flush
		t.flush = true
	}
	return begins
}

// down handles a message of the server and reports whether it makes a trip count. Notices and
// notifications out of turn have no effect: outside of a trip they do not count, and inside one
// only the first message does.
func (t *trip) down(m Message) (counts bool) {
	if t.open {
		counts = !t.answered
		t.answered = true
		t.flushed = t.flushed || t.flush
		t.flush = false
	}
	switch m.Type {
	case 'Z': // ReadyForQuery; the first one of a session is not asked for
		if t.pending > 0 {
			t.pending--
		}
		if t.pending == 0 {
			*t = trip{}
		}
	case 'G', 'W', encryption: // CopyIn, CopyBoth: a Sync that went before is void
		*t = trip{}
	case 'R':
		if m.asksPassword() {
			*t = trip{}
		}
	}
	return counts
}

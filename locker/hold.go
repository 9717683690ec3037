package locker

import (
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// A hold is a lock that a session of this process holds on the server. Readers share
// one.
type hold struct {
	gate    *gate
	session *session
	mode    advisory.Mode
	since   time.Time // the server granted it
	users   map[*handle]struct{}
	wanted  bool          // somebody waits for it on the server, as of the last ping
	dead    error         // it is gone with its session
	gone    chan struct{} // closed when it is dead
}

// admits reports whether r can have its lock by what is held already.
func (h *hold) admits(r *request) bool {
	return h.dead == nil && !h.wanted && h.mode == advisory.Shared && r.settings.Mode == advisory.Shared
}

// lost tells the users of a hold that it is gone.
func (h *hold) lost(err error) {
	if h.dead != nil {
		return
	}
	h.dead = err
	close(h.gone)
	if h.gate.hold == h {
		h.gate.endHold()
		h.gate.answerLast(err)
	}
	for k := range h.users {
		k.cancel(err)
		if !k.works {
			h.gate.l.removeUser(k) // there is nothing to wait for
		}
	}
}

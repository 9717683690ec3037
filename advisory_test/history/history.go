// Package history checks what the holders of locks have written down, in many processes
// and with faults all the while: nobody held beside another, the tokens only grew, and who
// lost a lock was told in time.
package history

import "time"

// A Time is in nanoseconds since 1970, by the clock that all processes of a machine have in
// common. The zero Time is never.
type Time int64

// Now is the time.
func Now() Time { return Time(time.Now().UnixNano()) }

// After is the time d later.
func (t Time) After(d time.Duration) Time { return t + Time(d) }

// Since is how much later t is than u.
func (t Time) Since(u Time) time.Duration { return time.Duration(t - u) }

// A Hold is a lock that somebody was given, as its holder saw it.
type Hold struct {
	Process int    // another for each process, also one that takes the place of another
	How     string // the call
	Key     string
	Shared  bool
	Token   uint64 // 0: none

	Session int  // the pid of its server process
	Opened  Time // when that session was ready to use, or later

	Asked, Got  Time // before the call, and after it
	Downgrading Time // before Downgrade was called

	// Alive is the last time at which the lock's Context was seen not to have ended, before
	// Unlock was called. It is 0 if the process ended before.
	Alive Time
	Told  Time // when its Context was seen to have ended with a loss

	// Blind: nobody tells its holder of a loss, as on a connection of one's own.
	Blind bool
}

// A Fault is something that was done to the sessions of a process.
type Fault struct {
	Kind    string
	Process int // 0: all
	Session int // 0: all of them

	// Ends: the server lets go of the locks, at any time after Sent. Else it must not before
	// their Contexts have ended.
	Ends bool

	// Sent is before the fault, and Over when it was done: sessions of before are gone, if it
	// ends them, or work again. Over is 0 if it is not known.
	Sent, Over Time

	// Due is when the last holder has to have been told, 0 if the fault is not to be noticed.
	Due Time
}

// grace is for a session that was opened, and told of, at the very end of a fault.
const grace = 200 * time.Millisecond

// hits reports whether h may have been on a session that f was done to.
func (f *Fault) hits(h *Hold) bool {
	switch {
	case f.Process != 0 && f.Process != h.Process:
		return false
	case f.Session != 0:
		return f.Session == h.Session
	}
	return f.Over == 0 || h.Opened < f.Over.After(grace)
}

// struck reports whether h is sure to have been on a session that f was done to.
func (f *Fault) struck(h *Hold) bool {
	return f.hits(h) && h.Opened < f.Sent && (f.Session != 0 || h.Got < f.Sent)
}

// forEver is later than any Time.
const forEver Time = 1<<63 - 1

// until returns up to when h is certain: its holder had reason to think so, and no fault had
// given the server a reason to let go.
func (h *Hold) until(faults []*Fault) Time {
	end := h.Alive
	if end == 0 {
		end = forEver
	}
	for _, f := range faults {
		if f.Sent < end && f.hits(h) && (f.Ends || h.Blind || h.Alive == 0) {
			end = f.Sent
		}
	}
	return end
}

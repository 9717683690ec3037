package inspect

import (
	"encoding/json"
	"fmt"
	"strings"
)

// A Kind of suspect.
type Kind string

// What a [Suspect] may be.
const (
	// Standby: locks on a server in recovery, which exclude nobody on the primary.
	Standby Kind = "standby"
	// Circle: sessions that wait for each other.
	Circle Kind = "circle"
	// Leak: a session that has been idle for long, outside of a transaction, and holds
	// several keys, as a connection does that went back to its pool with its locks.
	Leak Kind = "leak"
	// Idle: the same with one key.
	Idle Kind = "idle"
	// IdleInTransaction: a session that holds a lock and has been idle for long in an
	// open transaction.
	IdleInTransaction Kind = "idle in transaction"
	// Unread: a session that holds a lock and cannot get rid of its answer, for its
	// client does not read.
	Unread Kind = "unread"
	// Prepared: a prepared transaction that holds a lock, and that nobody has ended for
	// long.
	Prepared Kind = "prepared"
	// LongWait: sessions that have been waiting for long, for holders who are none of the
	// above.
	LongWait Kind = "long wait"
	// Unseen: sessions of which this role may not see enough to judge.
	Unseen Kind = "unseen"
)

// A Suspect is something that looks like an incident, or part of one.
type Suspect struct {
	Kind    Kind
	PID     int    // of the session; 0 where it is no one session
	Locks   []Lock // that it holds
	Waiters []Lock // who wait for these keys
	Why     string // what was seen, and what is inferred from it
	Do      string // in words
	// SQL to paste into psql. What ends a session or cancels its wait does nothing if the
	// session has gone on since. "" if there is nothing to run, or if this role may not see what it
	// would take to tell that.
	SQL string
}

// String says it in a few lines.
func (s Suspect) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n%s", s.Kind, s.Why, s.Do)
	if s.SQL != "" {
		fmt.Fprintf(&b, "\n\t%s", s.SQL)
	}
	return b.String()
}

// MarshalJSON leaves out what is empty.
func (s Suspect) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Kind    Kind   `json:"kind"`
		PID     int    `json:"pid,omitempty"`
		Locks   []Lock `json:"locks,omitempty"`
		Waiters []Lock `json:"waiters,omitempty"`
		Why     string `json:"why"`
		Do      string `json:"do"`
		SQL     string `json:"sql,omitempty"`
	}(s))
}

package inspect

import (
	"encoding/json"
	"fmt"
	"strings"
)

// A Kind is the kind of a [Suspect].
type Kind string

// The kinds of a [Suspect].
const (
	// Standby: locks on a server in recovery. They do not exclude those on the primary.
	Standby Kind = "standby"
	// Circle: sessions that wait for each other.
	Circle Kind = "circle"
	// Leak: a session that has been idle for long, outside of a transaction, and holds several
	// keys. A connection that went back to its pool with its locks looks like this.
	Leak Kind = "leak"
	// Idle: a session that has been idle for long, outside of a transaction, and holds one key.
	Idle Kind = "idle"
	// IdleInTransaction: a session that holds a lock and has been idle for long in an
	// open transaction.
	IdleInTransaction Kind = "idle in transaction"
	// Unread: a session that holds a lock and cannot send its answer, because its client does
	// not read.
	Unread Kind = "unread"
	// Prepared: a prepared transaction that holds a lock and was prepared long ago.
	Prepared Kind = "prepared"
	// LongWait: sessions that have been waiting for long, for holders that are not suspects of
	// another kind.
	LongWait Kind = "long wait"
	// Unseen: sessions that this role may not see enough of to judge.
	Unseen Kind = "unseen"
)

// A Suspect is a finding that looks like an incident, or part of one.
type Suspect struct {
	Kind    Kind
	PID     int    // of the session; 0 if it is not about one session
	Locks   []Lock // the locks that it holds
	Waiters []Lock // the waits for these keys
	Why     string // what the server shows, and what that suggests
	Do      string // what to do, in words
	// SQL is a statement to paste into psql. A statement that ends a session, or cancels its wait,
	// has no effect if the session has continued since. SQL is "" if there is none, or if this
	// role may not see what such a condition requires.
	SQL string
}

// String returns the suspect as a few lines.
func (s Suspect) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n%s", s.Kind, s.Why, s.Do)
	if s.SQL != "" {
		fmt.Fprintf(&b, "\n\t%s", s.SQL)
	}
	return b.String()
}

// MarshalJSON omits empty fields.
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

package inspect

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/endsql"
)

// A Lock is an advisory lock that a session or a prepared transaction holds or waits for. Ages are
// by the server's clock.
type Lock struct {
	Key     advisory.Key
	Mode    advisory.Mode
	Granted bool // true: held; false: waited for

	// PID is the pid of the server process, or 0 for a prepared transaction. Prepared is the
	// identifier of a prepared transaction, if known.
	PID      int
	Prepared string

	User        string // role; for a prepared transaction its owner
	Application string // application_name, which the client chooses
	Client      string // address and port, or "local" for a Unix socket

	// State is the state of the session, as in pg_stat_activity: "active", "idle",
	// "idle in transaction", "idle in transaction (aborted)", "disabled" (track_activities is
	// off). It is "prepared" for a prepared transaction, and "ended" for a session that ended
	// during the query.
	State      string
	StateSince time.Time     // the time at which the session entered State
	StateAge   time.Duration // the time since StateSince

	// WaitEvent is what the session's process waits for at the moment, such as
	// "Client/ClientRead", or "".
	WaitEvent string

	// Since is a time that depends on the kind of lock; Age is the time since then. Both are zero
	// if not visible.
	//
	//   - For a wait, Since is its beginning. Before PostgreSQL 14, which does not record that, it
	//     is the beginning of its statement.
	//   - For a held lock, it is the beginning of the session's transaction or, if none is open,
	//     the end of its last statement. PostgreSQL does not record when a lock was taken.
	//   - For a prepared transaction, it is when it was prepared.
	Since time.Time
	Age   time.Duration

	TransactionAge time.Duration // of the session's open transaction; 0 if there is none
	QueryAge       time.Duration // of the running statement, or the last one in an open transaction; 0 outside of transactions

	// WaitsFor has the pids of the sessions that keep this one waiting, for this or another
	// lock: they hold it, or are queued before this session. 0 is a prepared transaction.
	WaitsFor []int
	// WaitedForBy has the pids of the sessions that wait for this key behind this lock, or behind
	// this wait, the longest wait first.
	WaitedForBy []int

	// Hidden has the names of the fields that the role may not see, as in JSON: "client",
	// "state", "age", … An empty field that is not in Hidden is really empty.
	Hidden []string
}

// String returns the lock as one line, such as "4820 exclusive, held by pid 812, user app,
// application billing, client 10.0.0.7:50412, idle for 12s, pid 901 waits for it".
func (l Lock) String() string {
	var b strings.Builder
	verb := "held by"
	if !l.Granted {
		verb = "waited for by"
	}
	fmt.Fprintf(&b, "%v %v, %s %s", l.Key, l.Mode, verb, l.who())
	for _, f := range []struct{ name, value string }{{"user", l.User}, {"application", l.Application}, {"client", l.Client}} {
		if f.value != "" {
			fmt.Fprintf(&b, ", %s %s", f.name, clean(f.value))
		}
	}
	switch {
	case l.PID == 0:
		if l.Age > 0 {
			fmt.Fprintf(&b, ", prepared %v ago", round(l.Age))
		}
	case l.Granted:
		if l.State != "" {
			fmt.Fprintf(&b, ", %s", l.State)
			if l.StateAge > 0 {
				fmt.Fprintf(&b, " for %v", round(l.StateAge))
			}
		}
		if l.TransactionAge > 0 {
			fmt.Fprintf(&b, ", in a transaction for %v", round(l.TransactionAge))
		}
	case l.Age > 0:
		fmt.Fprintf(&b, " for %v", round(l.Age))
	}
	if len(l.WaitsFor) > 0 {
		fmt.Fprintf(&b, ", waits for %s", pids(l.WaitsFor))
	}
	if len(l.WaitedForBy) > 0 {
		verb := "waits"
		if len(l.WaitedForBy) > 1 {
			verb = "wait"
		}
		fmt.Fprintf(&b, ", %s %s for it", pids(l.WaitedForBy), verb)
	}
	if len(l.Hidden) > 0 {
		fmt.Fprintf(&b, " (this role may not see: %s)", strings.Join(l.Hidden, ", "))
	}
	return b.String()
}

// An id identifies a session or a prepared transaction.
type id struct {
	pid int
	gid string
}

func (l Lock) id() id { return id{l.PID, l.Prepared} }

func (l Lock) who() string {
	switch {
	case l.PID != 0:
		return fmt.Sprintf("pid %d", l.PID)
	case l.Prepared != "":
		return "the prepared transaction " + endsql.Quote(l.Prepared)
	}
	return "a prepared transaction"
}

// MarshalJSON writes the mode as a word, times as RFC 3339 and ages as seconds. It omits empty
// fields.
func (l Lock) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Key            advisory.Key `json:"key"`
		Mode           string       `json:"mode"`
		Granted        bool         `json:"granted"`
		PID            int          `json:"pid,omitempty"`
		Prepared       string       `json:"prepared,omitempty"`
		User           string       `json:"user,omitempty"`
		Application    string       `json:"application,omitempty"`
		Client         string       `json:"client,omitempty"`
		State          string       `json:"state,omitempty"`
		StateSince     time.Time    `json:"state_since,omitzero"`
		StateAge       float64      `json:"state_age,omitempty"`
		WaitEvent      string       `json:"wait_event,omitempty"`
		Since          time.Time    `json:"since,omitzero"`
		Age            float64      `json:"age,omitempty"`
		TransactionAge float64      `json:"transaction_age,omitempty"`
		QueryAge       float64      `json:"query_age,omitempty"`
		WaitsFor       []int        `json:"waits_for,omitempty"`
		WaitedForBy    []int        `json:"waited_for_by,omitempty"`
		Hidden         []string     `json:"hidden,omitempty"`
	}{
		l.Key, l.Mode.String(), l.Granted, l.PID, l.Prepared, l.User, l.Application, l.Client, l.State, l.StateSince, l.StateAge.Seconds(), l.WaitEvent,
		l.Since, l.Age.Seconds(), l.TransactionAge.Seconds(), l.QueryAge.Seconds(), l.WaitsFor, l.WaitedForBy, l.Hidden,
	})
}

package advisory

import (
	"fmt"
	"strings"
	"time"
)

// A Holder is a session or prepared transaction that holds a lock, as far as the server shows it. A
// role without the privileges of pg_read_all_stats may not see the client or the times. PostgreSQL
// does not record when a lock was taken.
type Holder struct {
	PID         int       // of the server process; 0 for a prepared transaction
	Mode        Mode      // of its lock
	User        string    // role name
	Application string    // application_name
	Client      string    // address and port, or "local" for a Unix socket
	Since       time.Time // start of its transaction, or end of its last statement if no transaction is open; zero if not visible
	Local       bool      // held by a Locker of this process
	Label       string    // of its call, if Local
}

// String describes the holder in one line, such as "pid 812, user app, application billing, client
// 10.0.0.7:50412, in this state since 2026-03-01T12:00:00Z".
func (h Holder) String() string {
	if h.PID == 0 {
		return "a prepared transaction"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "pid %d", h.PID)
	if h.Local {
		b.WriteString(" of this process")
	}
	for _, f := range []struct{ name, value string }{
		{"label", h.Label}, {"user", h.User}, {"application", h.Application}, {"client", h.Client},
	} {
		if f.value != "" {
			fmt.Fprintf(&b, ", %s %s", f.name, f.value)
		}
	}
	if !h.Since.IsZero() {
		fmt.Fprintf(&b, ", in this state since %s", h.Since.Format(time.RFC3339))
	}
	return b.String()
}

// A HeldLock is a lock that a session holds.
type HeldLock struct {
	Key  Key
	Mode Mode
}

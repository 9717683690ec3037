package advisory

import (
	"fmt"
	"strings"
	"time"
)

// A Holder is somebody who holds a lock, as far as the server shows it: a role
// without the rights of pg_read_all_stats may not see a client or a time.
// PostgreSQL does not record when a lock was taken.
type Holder struct {
	PID         int       // of the server process; 0 for a prepared transaction
	Mode        Mode      // in which it holds the lock
	User        string    // role name
	Application string    // application_name
	Client      string    // address and port, or "local" for a Unix socket
	Since       time.Time // when its transaction began or, between two, its last statement ended; zero if that is not to be seen
	Local       bool      // held by a Locker of this process
	Label       string    // of a local holder
}

// String says who it is in one line, such as "pid 812, user app, application
// billing, client 10.0.0.7:50412, in this state since 2026-03-01T12:00:00Z".
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

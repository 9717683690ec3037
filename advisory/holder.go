package advisory

import (
	"fmt"
	"strings"
	"time"
)

// A Holder is somebody who holds a lock, as the server shows it.
type Holder struct {
	PID         int       // of the server process; 0 for a prepared transaction
	Mode        Mode      // in which it holds the lock
	User        string    // role name
	Application string    // application_name
	Client      string    // address and port, or "local" for a Unix socket
	Since       time.Time // since when its session has been as it is: an upper bound for the hold is not known to the server
	Local       bool      // held by a Locker of this process
	Label       string    // of a local holder
}

// String says who it is in one line.
func (h Holder) String() string {
	if h.PID == 0 {
		return "a prepared transaction"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "pid %d", h.PID)
	for _, f := range []struct{ name, value string }{
		{"user", h.User}, {"application", h.Application}, {"client", h.Client},
	} {
		if f.value != "" {
			fmt.Fprintf(&b, ", %s %s", f.name, f.value)
		}
	}
	if !h.Since.IsZero() {
		fmt.Fprintf(&b, ", since %s", h.Since.Format(time.RFC3339))
	}
	return b.String()
}

// A HeldLock is a lock that a session holds.
type HeldLock struct {
	Key  Key
	Mode Mode
}

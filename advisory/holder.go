package advisory

import (
	"fmt"
	"strings"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/endsql"
)

// A Holder is a session or prepared transaction that holds a lock, as far as the server shows it. A
// role without the privileges of pg_read_all_stats may not see the client or the times. PostgreSQL
// does not record when a lock was taken.
type Holder struct {
	PID         int       // of the server process; 0 for a prepared transaction
	Key         Key       // of its lock; for a Semaphore that of a slot; the zero Key if no server has the lock, as in locktest
	Mode        Mode      // of its lock
	User        string    // role name
	Application string    // application_name
	Client      string    // address and port, or "local" for a Unix socket
	Since       time.Time // start of its transaction, or end of its last statement if no transaction is open; zero if not visible
	Local       bool      // held by a Locker of this process
	Label       string    // of its call, if Local

	BackendStart time.Time // when the session began; zero if not visible. The server reuses a PID, but not with this time
	Prepared     string    // identifier of a prepared transaction, if known
}

// String describes the holder in one line, such as "pid 812, user app, application billing, client
// 10.0.0.7:50412, in this state since 2026-03-01T12:00:00Z".
func (h Holder) String() string {
	switch {
	case h.PID == 0 && h.Prepared != "":
		return "the prepared transaction " + endsql.Quote(h.Prepared)
	case h.PID == 0:
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

// joined describes the holders in one line.
func joined(hs []Holder) string {
	list := make([]string, len(hs))
	for i, h := range hs {
		list[i] = h.String()
	}
	return strings.Join(list, " and ")
}

// EndSQL returns the statement by which an operator ends the holder, to paste into psql:
// pg_terminate_backend for a session, ROLLBACK PREPARED for a prepared transaction. Ending a session
// rolls back its transaction and releases all of its locks, not only this one.
//
// pg_terminate_backend has no effect if the session has ended, or no longer holds the lock in this
// Mode. It may be run in any database of the server, by the role of the session, a superuser or a role
// with the privileges of pg_signal_backend. ROLLBACK PREPARED must be run in the database of the lock,
// by the owner of the transaction or a superuser.
//
// EndSQL returns "" if Key is the zero Key, and for a prepared transaction without an identifier.
func (h Holder) EndSQL() string {
	switch {
	case h.Key.IsZero():
		return ""
	case h.PID != 0:
		return endsql.OnSession("pg_terminate_backend", "pg_catalog.pg_stat_activity JOIN pg_catalog.pg_locks USING (pid)", h.PID, h.conditions()...)
	case h.Prepared != "":
		return endsql.RollbackPrepared(h.Prepared)
	}
	return ""
}

// conditions are what holds as long as the session has the lock. It is in one database, so that of
// the lock needs no condition.
func (h Holder) conditions() (list []string) {
	if !h.BackendStart.IsZero() {
		list = append(list, endsql.At("backend_start", h.BackendStart))
	}
	mode := "ExclusiveLock"
	if h.Mode == Shared {
		mode = "ShareLock"
	}
	return append(list, fmt.Sprintf("locktype = 'advisory' AND classid = '%d' AND objid = '%d' AND objsubid = %d AND mode = '%s' AND granted",
		uint32(h.Key.n>>32), uint32(h.Key.n), h.Key.space, mode))
}

// A HeldLock is a lock that a session holds.
type HeldLock struct {
	Key  Key
	Mode Mode
}

package inspect

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/statement"
)

// A setting is a setting of the server, with the value that is in force.
type setting struct{ value, unit, source string }

func readSettings(ctx context.Context, conn *sql.Conn) (map[string]setting, error) {
	settings := map[string]setting{}
	err := statement.Session{Ctx: ctx, On: conn}.Query(lockfn.SettingsForCheck, nil, func(rows *sql.Rows) error {
		var name string
		var s setting
		err := rows.Scan(&name, &s.value, &s.unit, &s.source)
		settings[name] = s
		return err
	})
	return settings, err
}

func (s setting) number() int64 {
	n, _ := strconv.ParseInt(s.value, 10, 64)
	return n
}

func (s setting) duration() time.Duration {
	unit := time.Second
	switch s.unit {
	case "ms":
		unit = time.Millisecond
	case "min":
		unit = time.Minute
	}
	return time.Duration(s.number()) * unit
}

// where returns where the value was set.
func (s setting) where() string {
	switch s.source {
	case "default", "override":
		return "the default"
	case "user":
		return "set for the role"
	case "database":
		return "set for the database"
	case "database user":
		return "set for the role in this database"
	case "global":
		return "set for all roles"
	case "client":
		return "set in the connection string"
	case "session":
		return "set in the session"
	}
	return "from the " + s.source
}

var timeouts = []struct {
	name, advice string
	ends         bool // it ends the session
}{
	{"idle_session_timeout", "It ends a session that holds a lock and is idle for that long. A Locker turns it off for its sessions; for locks on connections of your own: ALTER ROLE … SET idle_session_timeout = 0", true},
	{"idle_in_transaction_session_timeout", "It ends a transaction that holds a lock and is idle for that long, for example while its work does something else: ALTER ROLE … SET idle_in_transaction_session_timeout = 0, or SET LOCAL in the transaction", true},
	{"transaction_timeout", "It ends the session of a transaction that takes that long, and releases its locks: ALTER ROLE … SET transaction_timeout = 0, or SET LOCAL in the transaction", true},
	{"statement_timeout", "It releases no lock, but cancels statements of the work, and waits with PlainWait", false},
}

func (c *check) timeouts(settings map[string]setting) {
	for _, t := range timeouts {
		s, ok := settings[t.name]
		switch {
		case !ok:
			c.report.add(t.name, OK, "this server does not have this setting", "")
		case s.number() == 0:
			c.report.add(t.name, OK, "off", "")
		case t.ends:
			c.report.add(t.name, Warning, fmt.Sprintf("%v, %s", s.duration(), s.where()), t.advice)
		default:
			c.report.add(t.name, OK, fmt.Sprintf("%v, %s", s.duration(), s.where()), t.advice)
		}
	}
}

// soon is how long a vanished holder may keep its lock without a warning.
const soon = time.Minute

// vanished reports how long a client that vanished keeps its lock, on an idle connection and on one
// whose last answer did not arrive.
//
// The server closes an idle link after tcp_keepalives_idle plus tcp_keepalives_count times
// tcp_keepalives_interval. If tcp_user_timeout is set, it replaces the count. While an answer is not
// acknowledged the kernel sends no keepalives: then only tcp_user_timeout counts.
func (c *check) vanished(settings map[string]setting) {
	const subject = "vanished client"
	if c.proxy {
		c.report.add(subject, Warning, "depends on the proxy", "The server's settings are for the link between the proxy and the server")
		return
	}
	if !c.tcp {
		c.report.add(subject, OK, "not over a Unix socket: the server detects the end of a client at once", "")
		return
	}
	idle, interval := settings["tcp_keepalives_idle"].duration(), settings["tcp_keepalives_interval"].duration()
	count, user := settings["tcp_keepalives_count"].number(), settings["tcp_user_timeout"].duration()
	after := idle + time.Duration(count)*interval
	if user > 0 {
		after = idle + interval
		for interval > 0 && after < user {
			after += interval
		}
	}
	value := fmt.Sprintf("keeps its lock for %v", after)
	if user == 0 {
		value += ", or, if an answer was being sent, until the server's system stops sending (on Linux a quarter of an hour or more)"
	} else {
		value += fmt.Sprintf(", or %v if an answer was being sent", user)
	}
	value += fmt.Sprintf(" (tcp_keepalives_idle %v, interval %v, count %d, tcp_user_timeout %v)", idle, interval, count, user)
	if user > 0 && after <= soon && user <= soon {
		c.report.add(subject, OK, value, "")
		return
	}
	c.report.add(subject, Warning, value, "A Locker sets its own. For locks on connections and in transactions of your own: "+
		"ALTER ROLE … SET tcp_keepalives_idle = 5; ALTER ROLE … SET tcp_keepalives_interval = 2; ALTER ROLE … SET tcp_keepalives_count = 2; ALTER ROLE … SET tcp_user_timeout = 9000")
}

func (c *check) activities(settings map[string]setting) {
	if s := settings["track_activities"]; s.value == "off" {
		c.report.add("track_activities", Warning, "off, "+s.where(), "Without it the library does not detect deadlocks between waits: turn it on")
		return
	}
	c.report.add("track_activities", OK, "on", "")
}

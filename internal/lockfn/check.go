package lockfn

import "strings"

// Version asks for the server's version in words.
const Version = "SELECT pg_catalog.version()"

// IsPostgreSQL reports whether an answer of [Version] is PostgreSQL's. Those of databases
// that only speak its protocol are not, or name them.
func IsPostgreSQL(version string) bool {
	return strings.HasPrefix(version, "PostgreSQL ") && !strings.Contains(version, "-YB-")
}

// OldestServer is the server_version_num of the oldest that this library is for.
const OldestServer = 120000

// ForCheck asks whether the server is in recovery, for its version as a number, how many
// entries the lock table has and how many there is room for, whether the connection is one
// of TCP, and for the session's pid.
const ForCheck = "SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('server_version_num')::pg_catalog.int4, (" + LocksInUse + "), " +
	lockTable + ", pg_catalog.inet_client_addr() IS NOT NULL, pg_catalog.pg_backend_pid()"

// lockTable is for how many locks the server's lock table has room.
const lockTable = "pg_catalog.current_setting('max_locks_per_transaction')::pg_catalog.int8 * (pg_catalog.current_setting('max_connections')::pg_catalog.int8 + pg_catalog.current_setting('max_prepared_transactions')::pg_catalog.int8)"

// SettingsForCheck lists the settings that matter to locks, as they are in force: name,
// value, unit, and where the value comes from.
const SettingsForCheck = "SELECT s.name, s.setting, coalesce(s.unit, ''), s.source FROM pg_catalog.pg_settings s WHERE s.name IN (" +
	"'idle_session_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout', 'statement_timeout', " +
	"'tcp_keepalives_idle', 'tcp_keepalives_interval', 'tcp_keepalives_count', 'tcp_user_timeout', 'track_activities') ORDER BY s.name"

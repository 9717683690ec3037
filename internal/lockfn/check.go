package lockfn

import "strings"

// Version asks for the text of the server's version.
const Version = "SELECT pg_catalog.version()"

// IsPostgreSQL reports whether an answer of [Version] is from PostgreSQL. Other databases that
// speak its protocol have another text, or name themselves in it.
func IsPostgreSQL(version string) bool {
	return strings.HasPrefix(version, "PostgreSQL ") && !strings.Contains(version, "-YB-")
}

// otherServer is the condition in SQL that [IsPostgreSQL] is false.
const otherServer = "(pg_catalog.left(pg_catalog.version(), 11) <> 'PostgreSQL ' OR pg_catalog.strpos(pg_catalog.version(), '-YB-') > 0)"

// OnOtherServer returns a row if the server is not PostgreSQL: see [IsPostgreSQL].
const OnOtherServer = "SELECT 1 WHERE " + otherServer

// OldestServer is the server_version_num of the oldest server that the library supports.
const OldestServer = 120000

// ForCheck asks for: whether the server is in recovery, its version as a number, how many entries
// of the lock table are in use and how many fit, whether the connection uses TCP, and the session's
// pid.
const ForCheck = "SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('server_version_num')::pg_catalog.int4, (" + LocksInUse + "), " +
	lockTable + ", pg_catalog.inet_client_addr() IS NOT NULL, pg_catalog.pg_backend_pid()"

// lockTable is how many locks fit into the server's lock table.
const lockTable = "pg_catalog.current_setting('max_locks_per_transaction')::pg_catalog.int8 * (pg_catalog.current_setting('max_connections')::pg_catalog.int8 + pg_catalog.current_setting('max_prepared_transactions')::pg_catalog.int8)"

// SettingsForCheck lists the values of the settings that matter to locks: name, value, unit, and
// source.
const SettingsForCheck = "SELECT s.name, s.setting, coalesce(s.unit, ''), s.source FROM pg_catalog.pg_settings s WHERE s.name IN (" +
	"'idle_session_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout', 'statement_timeout', " +
	"'tcp_keepalives_idle', 'tcp_keepalives_interval', 'tcp_keepalives_count', 'tcp_user_timeout', 'track_activities', 'synchronous_commit', 'synchronous_standby_names') ORDER BY s.name"

// Standbys counts the standbys that stream from the server: all, those whose state the role may see,
// and of those the ones that confirm commits. A role without rights sees only how many there are. A
// subscriber of logical replication is no standby.
const Standbys = "SELECT pg_catalog.count(*), pg_catalog.count(r.state), pg_catalog.count(*) FILTER (WHERE r.sync_state IN ('sync', 'quorum')) " +
	"FROM pg_catalog.pg_stat_replication r WHERE coalesce(r.state, 'streaming') IN ('streaming', 'catchup') " +
	"AND NOT EXISTS (SELECT FROM pg_catalog.pg_replication_slots s WHERE s.active_pid = r.pid AND s.slot_type = 'logical')"

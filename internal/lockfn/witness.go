package lockfn

import (
	"database/sql"
	"fmt"
	"strings"
	"time"
)

// serverID tells two servers apart, also a primary and its standby, which share the system identifier. It
// is another after each start of the server. It needs no rights.
const serverID = "(SELECT c.system_identifier FROM pg_catalog.pg_control_system() c)::pg_catalog.text || ' ' || " +
	"extract(epoch FROM pg_catalog.pg_postmaster_start_time())::pg_catalog.text"

// ServerID asks which server the session is on.
const ServerID = "SELECT " + serverID

// Promoted asks which server the session is on, and for how many milliseconds a server that was
// promoted gives out no lock yet. [ScanPromoted] reads the row.
//
// That time ends grace after the last commit that the server replayed. pg_last_xact_replay_timestamp()
// keeps that after the promotion, until the server is started again. From then on it is NULL. Then the
// time ends grace after the start, unless the server is on timeline 1, where none was promoted. It is
// never more than grace from now: the promotion was before.
//
// On a standby, which no lock is taken on, it is 0: pg_current_wal_lsn() would fail.
func Promoted(grace time.Duration) string {
	return fmt.Sprintf("SELECT "+serverID+", CASE WHEN "+inRecovery+" THEN 0 ELSE greatest(0, least(%[1]d, %[1]d + coalesce("+
		"ceil(1000 * extract(epoch FROM CASE "+
		"WHEN pg_catalog.pg_last_xact_replay_timestamp() IS NOT NULL THEN pg_catalog.pg_last_xact_replay_timestamp() "+
		"WHEN pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8) <> '00000001' THEN greatest(pg_catalog.pg_postmaster_start_time(), (SELECT b.stats_reset FROM pg_catalog.pg_stat_bgwriter b)) "+
		"END - pg_catalog.clock_timestamp())), -%[1]d))) END::pg_catalog.int8", grace.Milliseconds())
}

// ScanPromoted reads the row of [Promoted].
func ScanPromoted(row *sql.Row) (server string, closed time.Duration, err error) {
	var ms int64
	err = row.Scan(&server, &ms)
	return server, time.Duration(ms) * time.Millisecond, err
}

// Beat commits a message of the write-ahead log that does nothing. With synchronous_commit = on its
// answer comes when the standbys of synchronous_standby_names have that on disk. [ScanBeat] reads the
// row.
//
// It names the server and the settings under which it committed. The message gives the transaction
// something to confirm: one that only has an id is confirmed by nobody.
const Beat = "SELECT " + serverID + ", pg_catalog.current_setting('synchronous_standby_names'), pg_catalog.current_setting('synchronous_commit'), pg_catalog.pg_conf_load_time()::pg_catalog.text, " +
	"pg_catalog.pg_logical_emit_message(true, 'pgadvisory', '') IS NOT NULL"

// Loaded returns when the session read its settings. If it has read them since the [Beat] began, the
// server may have answered because the names became empty.
const Loaded = "SELECT pg_catalog.pg_conf_load_time()::pg_catalog.text"

// A Confirmation is the answer of a [Beat].
type Confirmation struct {
	Server string // as [ServerID] has it
	Named  bool   // synchronous_standby_names has standbys
	Waited bool   // the commit waited for them
	Loaded string // as [Loaded] has it
}

// ScanBeat reads the row of [Beat]. Scan closes the rows, which reads up to the end of the
// transaction: nothing is confirmed before.
func ScanBeat(row *sql.Row) (c Confirmation, err error) {
	var names, commit string
	var committed bool
	err = row.Scan(&c.Server, &names, &commit, &c.Loaded, &committed)
	c.Named, c.Waited = strings.TrimSpace(names) != "", committed && (commit == "on" || commit == "remote_apply")
	return c, err
}

package lockfn

import (
	"fmt"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// Look leaves a mark in pg_stat_activity, as the session's query: token, of letters and
// digits, and a letter. It counts the sessions that show the token with this letter, its own
// among them, and those with another; [Seen] reads the answer.
//
// The mark is at the front, too, because the server may cut queries short.
func Look(token string, letter byte) string {
	return fmt.Sprintf("/*%[1]s%[2]c*/ SELECT 1 FROM pg_catalog.generate_series(1, (SELECT CASE WHEN pg_catalog.bool_or(m.pid = pg_catalog.pg_backend_pid()) "+
		"THEN 1 + least(pg_catalog.count(*) FILTER (WHERE m.letter = '%[2]c'), 2) + 3 * least(pg_catalog.count(*) FILTER (WHERE m.letter <> '%[2]c'), 2) ELSE 1 END::pg_catalog.int4 "+
		"FROM (SELECT a.pid, pg_catalog.substr(a.query, pg_catalog.strpos(a.query, t.token) + %[3]d, 1) AS letter "+
		"FROM pg_catalog.pg_stat_activity a, (SELECT pg_catalog.left('%[1]s%[2]c', -1) AS token) t "+
		"WHERE a.backend_type = 'client backend' AND pg_catalog.strpos(a.query, t.token) > 0) m))", token, letter, len(token))
}

// Seen reads the answer of [Look]: how many sessions show its own mark and another, up to
// two of each. Own is nought if the session does not even see itself, as without
// track_activities.
func Seen(rows int64) (own, other int) {
	return int(rows-1) % 3, int(rows-1) / 3
}

// Role is a number of rows by which the roles of two sessions differ. They may, rarely, be
// the same for two roles.
const Role = "SELECT 1 FROM pg_catalog.generate_series(1, 1 + (SELECT a.usesysid::pg_catalog.int8 % 997 FROM pg_catalog.pg_stat_activity a WHERE a.pid = pg_catalog.pg_backend_pid())::pg_catalog.int4)"

// TryBeside tries a key that another connection holds, and gives back what it is granted,
// as one statement. If it is granted, it also gives back what its session had before, and
// looks whether the server says true to that for ever.
func TryBeside(k advisory.Key) string {
	unlock := call(unlockFn(advisory.Exclusive), k)
	return fmt.Sprintf("SELECT 1 FROM pg_catalog.generate_series(1, CASE WHEN NOT %s THEN %d WHEN NOT %s THEN %d WHEN NOT %[3]s THEN %[5]d WHEN NOT %[3]s THEN %[6]d ELSE %[4]d END)",
		call(tryFn(advisory.Exclusive), k), BesideBusy, unlock, BesideUnreal, BesideGranted, BesideSame)
}

// The answers of [TryBeside].
const (
	BesideBusy    = 1 + iota // as it should be
	BesideGranted            // although another session holds it
	BesideSame               // because it is the same session that holds it
	BesideUnreal             // the functions do not what they say
)

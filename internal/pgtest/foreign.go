package pgtest

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
)

// ForeignClass is the first number of the pairs that [ShowForeign] has pg_locks show as
// locks of an extension.
const ForeignClass = 771

// ShowForeign has pg_locks, in the database of db and on a server of the test's own, show the
// locks on pairs with [ForeignClass] as those of an extension: with classid 0 and objsubid 21.
// No SQL function takes such a lock, so the view stands in for the extension; sessions hold
// the lock and wait for it as they would.
func ShowForeign(t testing.TB, db *sql.DB) {
	t.Helper()
	ctx := context.Background()
	conn, err := db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	is := fmt.Sprintf("locktype = ''advisory'' AND classid = %d AND objsubid = 2", ForeignClass) // within quotes
	var columns string
	err = conn.QueryRowContext(ctx, `SELECT string_agg(CASE attname::text
			WHEN 'classid' THEN 'CASE WHEN `+is+` THEN 0::oid ELSE classid END AS classid'
			WHEN 'objsubid' THEN 'CASE WHEN `+is+` THEN 21::int2 ELSE objsubid END AS objsubid'
			ELSE attname::text END, ', ' ORDER BY attnum)
		FROM pg_attribute WHERE attrelid = 'pg_catalog.pg_locks'::regclass AND attnum > 0`).Scan(&columns)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"SET allow_system_table_mods = on",
		"CREATE OR REPLACE VIEW pg_catalog.pg_locks AS SELECT " + columns + " FROM pg_lock_status()",
		"RESET allow_system_table_mods",
	} {
		if _, err := conn.ExecContext(ctx, text); err != nil {
			t.Fatal(err)
		}
	}
}

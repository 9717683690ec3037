package harness

import (
	"context"
	"database/sql"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/sqlconn"
)

var Key = advisory.Int64(4820)

// AllKeys are the corners of both key spaces.
var AllKeys = []advisory.Key{
	advisory.Int64(0), advisory.Int64(1), advisory.Int64(-1), advisory.Int64(4820), advisory.Int64(1 << 32),
	advisory.Int64(-1 << 63), advisory.Int64(1<<63 - 1),
	advisory.Pair(0, 0), advisory.Pair(0, 1), advisory.Pair(-1, -2), advisory.Pair(-1<<31, 1<<31-1), advisory.Pair(1<<31-1, -1<<31),
}

var Modes = []advisory.Mode{advisory.Exclusive, advisory.Shared}

func TryLock(t testing.TB, conn sqlconn.Conn, k advisory.Key, opts ...advisory.ConnOption) bool {
	t.Helper()
	ok, err := sqlconn.TryLock(context.Background(), conn, k, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

func Unlock(t testing.TB, conn sqlconn.Conn, k advisory.Key, opts ...advisory.ConnOption) {
	t.Helper()
	if err := sqlconn.Unlock(context.Background(), conn, k, opts...); err != nil {
		t.Fatal(err)
	}
}

// SettingsOf is every setting of a session, those of ours too, which are empty again after a
// wait. Those of plpgsql appear when it is first used.
func SettingsOf(t testing.TB, on interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
},
) string {
	t.Helper()
	return Ask[string](t, on, `SELECT string_agg(name || '=' || coalesce(setting, ''), ' ' ORDER BY name)
		|| ' ' || (SELECT string_agg(coalesce(current_setting('pgadvisory.' || n, true), ''), ' ') FROM unnest('{a,b,got}'::text[]) n)
		FROM pg_settings WHERE name NOT LIKE 'plpgsql.%'`)
}

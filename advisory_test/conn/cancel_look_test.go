package conn_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// A querier is a connection or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// heldBy lists the advisory locks of a session, as pg_locks has them.
func heldBy(on querier) (held string, err error) {
	rows, err := on.QueryContext(context.Background(), `SELECT coalesce(string_agg(format('%s %s %s %s', classid, objid, objsubid, mode), ', ' ORDER BY classid, objid, objsubid, mode), '')
		FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()`)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(&held); err != nil {
			return "", err
		}
	}
	return held, rows.Err()
}

// listed is what heldBy returns for a session that holds the keys and no others.
func listed(keys []advisory.Key, m advisory.Mode) string {
	mode := "ExclusiveLock"
	if m == advisory.Shared {
		mode = "ShareLock"
	}
	keys = slices.Clone(keys)
	slices.SortFunc(keys, func(a, b advisory.Key) int { return strings.Compare(tag(a), tag(b)) })
	var held []string
	for _, k := range keys {
		held = append(held, tag(k)+" "+mode)
	}
	return strings.Join(held, ", ")
}

// tag is classid, objid and objsubid of a key.
func tag(k advisory.Key) string {
	if class, object, ok := k.Pair(); ok {
		return fmt.Sprint(uint32(class), uint32(object), 2)
	}
	n, _ := k.Int64()
	return fmt.Sprint(uint32(n>>32), uint32(n), 1)
}

// waitsFor asks whether a session waits for the key, on the server or by a row of
// tries.
func waitsFor(k advisory.Key) string {
	t := strings.Fields(tag(k))
	return fmt.Sprintf(`SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND classid = '%s' AND objid = '%s' AND objsubid = %s)
		OR EXISTS (SELECT FROM pg_stat_activity WHERE query LIKE '/*pgadvisory waits _ %[1]s %[2]s %[3]s*/%%')`, t[0], t[1], t[2])
}

package keys_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// What Key.SQL returns, pasted between the parentheses, is the same key to the
// server: the least numbers too, and in the same space.
func TestSQLOfAKeyCanBePasted(t *testing.T) {
	db := openUTF8(t)
	keys := []advisory.Key{
		advisory.Int64(rand.Int64()), advisory.Int64(-rand.Int64()),
		advisory.Pair(rand.Int32(), -rand.Int32()), advisory.Pair(-rand.Int32(), rand.Int32()),
	}
	for _, n := range []int64{0, 1, -1, 4820, math.MaxInt32, math.MaxInt32 + 1, math.MinInt32, math.MinInt32 - 1, math.MaxInt64, math.MinInt64} {
		keys = append(keys, advisory.Int64(n))
	}
	for _, class := range []int32{0, 12, -1, math.MaxInt32, math.MinInt32} {
		for _, object := range []int32{0, 34, -1, math.MaxInt32, math.MinInt32} {
			keys = append(keys, advisory.Pair(class, object))
		}
	}
	for _, k := range keys {
		for _, query := range []string{"SELECT pg_try_advisory_xact_lock(%s)", "select 1 from pg_advisory_xact_lock(%s)"} {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.ExecContext(t.Context(), fmt.Sprintf(query, k.SQL())); err != nil {
				t.Errorf("%v: %v", k, err)
			}
			// The manual, "pg_locks": the halves of a bigint, or the numbers of a pair.
			var high, low int64
			var space int
			err = tx.QueryRowContext(t.Context(),
				"SELECT classid::bigint, objid::bigint, objsubid FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
			).Scan(&high, &low, &space)
			if err != nil {
				t.Errorf("%v: %v", k, err)
			}
			got := advisory.Int64(high<<32 | low)
			if space == 2 {
				got = advisory.Pair(int32(high), int32(low))
			}
			if got != k {
				t.Errorf("%s of %q took %v", query, k.SQL(), got)
			}
			tx.Rollback()
		}
	}
	if _, err := db.ExecContext(t.Context(), "SELECT pg_try_advisory_xact_lock("+advisory.Key{}.SQL()+")"); err == nil {
		t.Error("the server accepted the zero Key")
	}
}

// The comment of Name says how to compute its key in SQL.
func TestNameCanBeComputedInSQL(t *testing.T) {
	db := openUTF8(t)
	for _, parts := range [][]string{{"billing", "eu"}, {"account", "17"}, {"日本語", "😀"}, {"a", "bc"}, {"ab", "c"}} {
		var n int64
		err := db.QueryRowContext(t.Context(), `
			SELECT ('x' || encode(substr(sha256(
			           int8send(octet_length($1::text)) || convert_to($1, 'UTF8') ||
			           int8send(octet_length($2::text)) || convert_to($2, 'UTF8')
			       ), 1, 8), 'hex'))::bit(64)::bigint`, parts[0], parts[1]).Scan(&n)
		if got := advisory.Name(parts...); err != nil || got != advisory.Int64(n) {
			t.Errorf("Name(%q) = %v, in SQL %d, %v", parts, got, n, err)
		}
	}
}

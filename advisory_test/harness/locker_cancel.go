package harness

import (
	"context"
	"fmt"
	"testing"

	"github.com/pgadvisory/pgadvisory/sqlconn"
)

// FillLockTable takes locks by hand until there is no room for more, and returns how many.
func FillLockTable(t *testing.T, conn sqlconn.Conn) (n int) {
	t.Helper()
	for step := 1000; step > 0; {
		_, err := conn.ExecContext(context.Background(), fmt.Sprintf("SELECT pg_advisory_lock(%d, n) FROM generate_series(%d, %d) n", 77, n, n+step-1))
		// What a statement took before it failed it keeps.
		n = Ask[int](t, conn, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")
		if err != nil {
			step /= 10
		}
	}
	t.Logf("the lock table is full with %d", n)
	return n
}

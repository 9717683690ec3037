package conn_test

import (
	"context"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// VACUUM removes nothing that the oldest snapshot may still see, and that of a
// waiter is no older than a slice.
func TestSnapshotsOfWaitersAreYoung(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel() // on a server of its own
	// Transactions elsewhere on a server make snapshots look old.
	server := pgtest.NewServer(t, "max_connections=200", "autovacuum=off")
	harness.EachAtOnce(t, server.Database, func(t *testing.T, p *harness.Pool) {
		ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
		defer cancel()
		holder, plain := p.NewConn(t), p.NewConn(t)
		harness.TryLock(t, holder, harness.Key)
		waiters := waiting(p, ctx, t, 2, harness.Key)
		plainPID := harness.Ask[int](t, plain, "SELECT pg_backend_pid()")
		plainly := make(chan error, 1)
		go func() {
			_, err := plain.ExecContext(context.Background(), "SELECT pg_advisory_lock(4820)")
			plainly <- err
		}()
		harness.Eventually(t, "one waits plainly", func() bool {
			return harness.Ask[int](t, p, "SELECT count(*) FROM pg_locks WHERE pid = $1 AND NOT granted", plainPID) == 1
		})

		const samples = 50
		seen := map[int]*snapshot{}
		for range samples {
			sample(p, t, seen)
			time.Sleep(40 * time.Millisecond)
		}
		harness.Unlock(t, holder, harness.Key)
		if err := <-plainly; err != nil {
			t.Fatal(err)
		}
		harness.DoSQL(t, plain, "SELECT pg_advisory_unlock(4820)")
		if err := waiters.Wait(); err != nil {
			t.Error(err)
		}

		if s := seen[plainPID]; s == nil || s.longest != samples {
			t.Fatalf("the snapshot of a blocking waiter was seen in a row of %+v samples, not of %d", s, samples)
		}
		oldest := snapshot{}
		for pid, s := range seen {
			if pid != plainPID && s.longest > oldest.longest {
				oldest = *s
			}
		}
		t.Logf("snapshots of %d waiters were seen, each in %d samples in a row or less, over %v; that of a blocking waiter in all %d",
			len(seen)-1, oldest.longest, harness.Round(oldest.age), samples)
		if oldest.longest == 0 || oldest.longest > samples/2 {
			t.Errorf("the oldest snapshot of a waiter was seen in a row of %d samples", oldest.longest)
		}
	})
}

// A snapshot is what was seen of those of a session.
type snapshot struct {
	xmin    string
	since   time.Time
	row     int // of samples with this xmin
	longest int
	age     time.Duration // over that row
}

// sample looks once at every snapshot of the database. Each time one that is taken
// anew is of another transaction id.
func sample(p *harness.Pool, t testing.TB, seen map[int]*snapshot) {
	t.Helper()
	harness.DoSQL(t, p, "SELECT txid_current()")
	rows, err := p.Query("SELECT pid, coalesce(backend_xmin::text, '') FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	now := time.Now()
	for rows.Next() {
		var pid int
		var xmin string
		if err := rows.Scan(&pid, &xmin); err != nil {
			t.Fatal(err)
		}
		s := seen[pid]
		switch {
		case s == nil && xmin == "":
			continue
		case s == nil:
			s = &snapshot{}
			seen[pid] = s
		}
		if s.xmin != xmin {
			s.xmin, s.since, s.row = xmin, now, 0
		}
		if xmin == "" {
			continue
		}
		if s.row++; s.row > s.longest {
			s.longest, s.age = s.row, now.Sub(s.since)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

//go:build unix

package failover_test

import (
	"database/sql"
	"syscall"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// grace is how long a server says that it gives out no lock yet.
func grace(t *testing.T, db *sql.DB, of time.Duration) (server string, left time.Duration) {
	t.Helper()
	server, left, err := lockfn.ScanPromoted(db.QueryRow(lockfn.Promoted(of)))
	if err != nil {
		t.Fatal(err)
	}
	return server, left
}

// A server that was never promoted has no grace. The statements of the proof need no rights.
func TestNoGraceOnAServerThatWasNeverPromoted(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := pgtest.NewServer(t)
	url := harness.Unprivileged(t, server)
	for _, d := range harness.Drivers[:2] {
		db := d.Open(t, url).DB
		id, left := grace(t, db, time.Hour)
		if left != 0 {
			t.Errorf("%s: a grace of %v", d.Name, left)
		}
		c, err := lockfn.ScanBeat(db.QueryRow(lockfn.Beat))
		if err != nil || c.Server != id || c.Named || !c.Waited {
			t.Errorf("%s: %+v, %v, on %q", d.Name, c, err, id)
		}
		l := locker.New(db, locker.WithStandby())
		if err := l.Ping(t.Context()); err == nil {
			t.Errorf("%s: Ping succeeds without a standby", d.Name)
		}
		l.Close()
	}
}

// A promoted server has a grace after its last replayed commit, or after its start once that is forgotten.
// It is another server than its primary, though both have one system identifier.
func TestGraceAfterAPromotion(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	r := harness.NewReplication(t, 1)
	a, b := r.Primary, r.Standbys[0]
	idA, left := grace(t, a.Watch, time.Hour)
	if left != 0 {
		t.Errorf("the primary has a grace of %v", left)
	}
	if id, left := grace(t, b.Watch, time.Hour); left != 0 || id == idA {
		t.Errorf("the standby has a grace of %v; it is %q, its primary %q", left, id, idA)
	}
	a.Exec("CREATE TABLE t ()")
	committed := time.Now()
	b.CatchUp(a)
	b.Promote()
	id, left := grace(t, b.Watch, time.Hour)
	if ends := time.Now().Add(left); ends.Before(committed.Add(time.Hour-time.Second)) || ends.After(time.Now().Add(time.Hour)) {
		t.Errorf("the promoted server has a grace of %v, %v after its last replayed commit", left, time.Since(committed))
	}
	if _, left := grace(t, b.Watch, time.Millisecond); left != 0 {
		t.Errorf("a grace of a millisecond lasts for another %v", left)
	}
	b.Exec("CREATE TABLE u ()") // it was not replayed
	if _, now := grace(t, b.Watch, time.Hour); now > left {
		t.Errorf("a commit of its own prolongs the grace from %v to %v", left, now)
	}
	for _, mode := range []string{"fast", "immediate"} {
		before := time.Now()
		if err := b.Stop(mode); err != nil {
			t.Fatal(err)
		}
		if err := b.Start(); err != nil {
			t.Fatal(err)
		}
		again, left := grace(t, b.Watch, time.Hour)
		if ends := time.Now().Add(left); ends.Before(before.Add(time.Hour)) || again == id {
			t.Errorf("after a stop (%s) the grace is %v, %v after; it is %q, and was %q", mode, left, time.Since(before), again, id)
		}
		id = again
	}
	if id, _ := grace(t, a.Watch, time.Hour); id != idA {
		t.Errorf("the old primary is %q, and was %q", id, idA)
	}
}

// After the crash of a process the server forgets what it replayed, and keeps its start time. Its grace
// begins again.
func TestGraceAfterTheCrashOfAProcess(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	const of = 4 * time.Second
	r := harness.NewReplication(t, 1, "restart_after_crash=on")
	a, b := r.Primary, r.Standbys[0]
	time.Sleep(of) // the standby has run for longer than the grace
	a.Exec("CREATE TABLE replayed ()")
	b.CatchUp(a)
	b.Promote()
	pid := harness.Ask[int](t, b.Watch, "SELECT pg_backend_pid()")
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var left time.Duration
	harness.Eventually(t, "the server answers again", func() (ok bool) {
		var err error
		_, left, err = lockfn.ScanPromoted(b.Watch.QueryRow(lockfn.Promoted(of)))
		return err == nil
	})
	if left == 0 {
		t.Error("there is no grace after the crash")
	}
}

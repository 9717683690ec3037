//go:build unix

package failover_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// The standby is cut off for good, and the names become empty and are set again, over and over. Each time
// the server answers the beat that waits. No such answer confirms anything.
func TestNamesThatFlapConfirmNothing(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	r := harness.NewReplication(t, 1)
	a, b := r.Primary, r.Standbys[0]
	a.Synchronous("b")
	_, lock := held(t, harness.Drivers[0], a, advisory.Int64(1), locker.WithApplicationName("flap"))
	b.Cut()
	flaps := 0
	for end := time.Now().Add(harness.Patience); lock.Context().Err() == nil && time.Now().Before(end); {
		if !harness.Ask[bool](t, a.Watch, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'flap')") {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		a.Synchronous("")
		a.Synchronous("b")
		flaps++
	}
	if cause := context.Cause(lock.Context()); !errors.Is(cause, advisory.ErrUnconfirmed) {
		t.Errorf("after %d times without names: %v", flaps, cause)
	}
}

// The pool has three connections, and the witness's ends. A wait that begins before there is another
// leaves a connection to the work.
func TestWorkHasAConnectionWhileTheWitnessIsReplaced(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	r := harness.NewReplication(t, 1)
	a := r.Primary
	a.Synchronous("b")
	other := proofLocker(t, harness.Drivers[0], a)
	if _, ok := harness.LockerTry(t, other, advisory.Int64(2)); !ok {
		t.Fatal("the key is taken")
	}
	db := harness.Drivers[0].Open(t, a.URL()).DB
	db.SetMaxOpenConns(3)
	l := locker.New(db, locker.WithStandby(), locker.WithApplicationName("three"))
	defer l.Close()
	lock, ok := harness.LockerTry(t, l, advisory.Int64(1))
	if !ok {
		t.Fatal("the key is taken")
	}
	a.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'three' AND query ~ 'emit_message|conf_load_time'")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	harness.Eventually(t, "the witness is gone", func() bool { return db.Stats().InUse < 2 })
	go l.Lock(ctx, advisory.Int64(2))
	harness.Eventually(t, "there is another witness", func() bool {
		return harness.Ask[bool](t, a.Watch, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'three' AND query ~ 'emit_message|conf_load_time')")
	})
	short, end := context.WithTimeout(ctx, harness.Patience/2)
	defer end()
	conn, err := db.Conn(short)
	if err != nil {
		t.Fatalf("work under the lock got no connection: %v", err)
	}
	defer conn.Close()
	if lock.Context().Err() != nil {
		t.Errorf("the lock is lost: %v", context.Cause(lock.Context()))
	}
}

package conn_test

import (
	"context"
	"errors"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/locker"
	"github.com/pgadvisory/pgadvisory/sqlconn"
	"github.com/pgadvisory/pgadvisory/xact"
)

// A tryCall is a call that makes one try for k: with HoldersTo, or as a wait with MaxWait(0).
type tryCall struct {
	try  func(p *harness.Pool, l *locker.Locker, free, k advisory.Key, to advisory.CallOption) (bool, error)
	once func(p *harness.Pool, l *locker.Locker, free, k advisory.Key, once advisory.CallOption) error
}

// tryCalls take k, or k and free.
func tryCalls(t *testing.T) map[string]tryCall {
	ctx := t.Context()
	nothing := func(context.Context) error { return nil }
	onConn := func(context.Context, sqlconn.Conn) error { return nil }
	inTx := func(context.Context, xact.Tx) error { return nil }
	type (
		P = *harness.Pool
		L = *locker.Locker
		K = advisory.Key
		O = advisory.CallOption
	)
	locked := func(lock advisory.Lock, ok bool, err error) (bool, error) {
		lock.Unlock()
		return ok, err
	}
	return map[string]tryCall{
		"sqlconn": {
			func(p P, _ L, _, k K, o O) (bool, error) {
				conn := p.NewConn(t)
				ok, err := sqlconn.TryLock(ctx, conn, k, o)
				if ok {
					harness.Unlock(t, conn, k)
				}
				return ok, err
			},
			func(p P, _ L, _, k K, o O) error { return sqlconn.Lock(ctx, p.NewConn(t), k, o) },
		},
		"sqlconn, work": {
			func(p P, _ L, _, k K, o O) (bool, error) { return p.TryDo(ctx, k, onConn, o) },
			func(p P, _ L, _, k K, o O) error { return p.Do(ctx, k, onConn, o) },
		},
		"xact": {
			func(p P, _ L, _, k K, o O) (bool, error) {
				tx := p.Tx(t, nil)
				defer tx.Rollback()
				return xact.TryLock(ctx, tx, k, o)
			},
			func(p P, _ L, _, k K, o O) error { return xact.Lock(ctx, p.Tx(t, nil), k, o) },
		},
		"xact, all": {
			func(p P, _ L, free, k K, o O) (bool, error) {
				tx := p.Tx(t, nil)
				defer tx.Rollback()
				return xact.TryLockAll(ctx, tx, []K{free, k}, o)
			},
			func(p P, _ L, free, k K, o O) error { return xact.LockAll(ctx, p.Tx(t, nil), []K{free, k}, o) },
		},
		"xact, any": {
			func(p P, _ L, _, k K, o O) (bool, error) {
				tx := p.Tx(t, nil)
				defer tx.Rollback()
				_, ok, err := xact.TryLockAny(ctx, tx, []K{k}, o)
				return ok, err
			},
			nil,
		},
		"xact, work": {
			func(p P, _ L, _, k K, o O) (bool, error) { return p.TxTryDo(ctx, k, inTx, o) },
			func(p P, _ L, _, k K, o O) error { return p.TxDo(ctx, k, inTx, o) },
		},
		"Locker": {
			func(_ P, l L, _, k K, o O) (bool, error) { return locked(l.TryLock(ctx, k, o)) },
			func(_ P, l L, _, k K, o O) error { return harness.Second(l.Lock(ctx, k, o)) },
		},
		"Locker, work": {
			func(_ P, l L, _, k K, o O) (bool, error) { return l.TryDo(ctx, k, nothing, o) },
			func(_ P, l L, _, k K, o O) error { return l.Do(ctx, k, nothing, o) },
		},
		"Locker, all": {
			func(_ P, l L, free, k K, o O) (bool, error) {
				locks, ok, err := l.TryLockAll(ctx, []K{free, k}, o)
				return ok, errors.Join(err, locks.Unlock())
			},
			func(_ P, l L, free, k K, o O) error { return harness.Second(l.LockAll(ctx, []K{free, k}, o)) },
		},
		"Locker, any": {
			func(_ P, l L, _, k K, o O) (bool, error) { return locked(l.TryLockAny(ctx, []K{k}, o)) },
			func(_ P, l L, _, k K, o O) error { return harness.Second(l.LockAny(ctx, []K{k}, o)) },
		},
		"semaphore": {
			func(_ P, l L, _, k K, o O) (bool, error) { return locked(l.Semaphore(k, 1).TryAcquire(ctx, o)) },
			func(_ P, l L, _, k K, o O) error { return harness.Second(l.Semaphore(k, 1).Acquire(ctx, o)) },
		},
		"semaphore, work": {
			func(_ P, l L, _, k K, o O) (bool, error) { return l.Semaphore(k, 1).TryDo(ctx, nothing, o) },
			func(_ P, l L, _, k K, o O) error { return l.Semaphore(k, 1).Do(ctx, nothing, o) },
		},
	}
}

// One call says that the key is taken, and by whom: false and HoldersTo, or the error of MaxWait(0).
func TestOneCallSaysWhoHasTheKey(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		holder, l := p.Locker(t), p.Locker(t)
		lock, ok := harness.LockerTry(t, holder, harness.Key)
		if !ok {
			t.Fatal("the key is taken")
		}
		slot, ok, err := holder.Semaphore(harness.Key, 1).TryAcquire(t.Context())
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		pids := map[advisory.Key]int{}
		for _, k := range []advisory.Key{lock.Key(), slot.Key()} {
			pids[k] = harness.Ask[int](t, p, "SELECT pid FROM pg_locks WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND locktype = 'advisory' AND (classid::int8 << 32 | objid::int8) = "+k.SQL())
		}
		free := advisory.Int64(1) // before the key, in the order of LockAll
		check := func(name string, hs []advisory.Holder) {
			if len(hs) != 1 || hs[0].PID == 0 || hs[0].PID != pids[hs[0].Key] || hs[0].EndSQL() == "" {
				t.Errorf("%s: %+v, want one of %v", name, hs, pids)
			}
		}
		stale := []advisory.Holder{{PID: -1}}
		for name, c := range tryCalls(t) {
			hs := stale
			if ok, err := c.try(p, l, free, harness.Key, advisory.HoldersTo(&hs)); ok || err != nil {
				t.Errorf("%s: %v, %v", name, ok, err)
			}
			check(name, hs)
			hs = stale
			if ok, err := c.try(p, l, free, advisory.Int64(2), advisory.HoldersTo(&hs)); !ok || err != nil || hs != nil {
				t.Errorf("%s, of a free key: %v, %v, %v", name, ok, err, hs)
			}
			if c.once == nil {
				continue
			}
			err := c.once(p, l, free, harness.Key, advisory.MaxWait(0))
			busy, ok := errors.AsType[*advisory.NotAcquiredError](err)
			if !ok {
				t.Errorf("%s, MaxWait(0): %v", name, err)
				continue
			}
			check(name+", MaxWait(0)", busy.Holders)
			hs = stale
			if err := c.once(p, l, free, advisory.Key{}, advisory.HoldersTo(&hs)); !errors.Is(err, advisory.ErrInvalidKey) {
				t.Errorf("%s: %v", name, err)
			}
		}
		harness.Release(t, lock)
		harness.Release(t, slot)
		p.NoLocks(t)
	})
}

// The answer to who holds the key is a part of the call: the transaction is as usable after it as before.
func TestHoldersToLeavesTheTransactionUsable(t *testing.T) {
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		conn, tx := p.NewConn(t), p.Tx(t, nil)
		harness.TryLock(t, conn, harness.Key)
		var hs []advisory.Holder
		for range 3 {
			if ok, err := xact.TryLockAll(t.Context(), tx, []advisory.Key{advisory.Int64(1), harness.Key}, advisory.HoldersTo(&hs)); ok || err != nil || len(hs) != 1 {
				t.Fatal(ok, err, hs)
			}
		}
		if held := harness.Ask[int](t, tx, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"); held != 0 {
			t.Errorf("it holds %d locks", held)
		}
		if err := tx.Commit(); err != nil {
			t.Error(err)
		}
		harness.Unlock(t, conn, harness.Key)
	})
}

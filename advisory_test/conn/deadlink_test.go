package conn_test

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/pgtest/proxy"
	"github.com/pgadvisory/pgadvisory/sqlconn"
	"github.com/pgadvisory/pgadvisory/xact"
)

// A death is how a link dies.
type death struct {
	name string
	dir  proxy.Direction
	at   func(p *proxy.Proxy, statement func(proxy.Message) bool) (dead <-chan struct{})
}

var deaths = []death{
	{"both ways", proxy.Both, func(p *proxy.Proxy, st func(proxy.Message) bool) <-chan struct{} { return p.FreezeOn(st) }},
	{"up", proxy.Up, func(p *proxy.Proxy, st func(proxy.Message) bool) <-chan struct{} { return p.FreezeOn(st, proxy.Up) }},
	{"down", proxy.Down, func(p *proxy.Proxy, st func(proxy.Message) bool) <-chan struct{} { return p.FreezeOn(st, proxy.Down) }},
	{"after the statement", proxy.Both, func(p *proxy.Proxy, st func(proxy.Message) bool) <-chan struct{} { return p.FreezeAfter(st) }},
	{"before the answer", proxy.Down, func(p *proxy.Proxy, st func(proxy.Message) bool) <-chan struct{} {
		asked := false
		return p.FreezeOn(func(m proxy.Message) bool {
			if asked {
				return m.Direction == proxy.Down
			}
			asked = st(m)
			return false
		}, proxy.Down)
	}},
}

// A proxiedLink dies as death says.
type proxiedLink struct {
	*proxy.Proxy
	death death
}

func (l proxiedLink) DieAt(text string) <-chan struct{} {
	return l.death.at(l.Proxy, func(m proxy.Message) bool {
		return m.Direction == proxy.Up && strings.Contains(strings.ToLower(m.Text), text)
	})
}

func (l proxiedLink) DieNow() { l.Freeze(l.death.dir) }
func (l proxiedLink) Revive() { l.Thaw() }

// Statements of a wait, to die at.
const (
	aSlice   = "pg_catalog.pg_advisory_xact_lock("
	aTry     = "*/ SELECT pg_catalog.generate_series(1, CASE WHEN"
	theNames = "pg_stat_activity"
)

// deadCalls are calls on a link that dies right at their beginning.
var deadCalls = []harness.DeadCall{
	{Name: "sqlconn.TryLock", Is: harness.IsEnd, Call: func(l *harness.Line) error {
		conn := l.NewConn()
		l.Die()
		_, err := sqlconn.TryLock(l.Ctx, conn, l.Key)
		return err
	}},
	{Name: "sqlconn.Lock", Is: harness.IsNotAcquiredEnd, Call: func(l *harness.Line) error {
		conn := l.NewConn()
		l.Die()
		return sqlconn.Lock(l.Ctx, conn, l.Key)
	}},
	{Name: "sqlconn.Lock with MaxWait", Is: harness.IsNotAcquired, Call: func(l *harness.Line) error {
		conn := l.NewConn()
		l.Die()
		return sqlconn.Lock(context.Background(), conn, l.Key, advisory.MaxWait(harness.Dying))
	}},
	{Name: "sqlconn.Lock with PlainWait", Is: harness.IsNotAcquiredEnd, Call: func(l *harness.Line) error {
		conn := l.NewConn()
		l.Die()
		return sqlconn.Lock(l.Ctx, conn, l.Key, sqlconn.PlainWait())
	}},
	{Name: "sqlconn.Unlock", Is: harness.IsError, Call: func(l *harness.Line) error {
		conn := l.LockedConn()
		l.Die()
		return sqlconn.Unlock(l.Ctx, conn, l.Key)
	}},
	{Name: "sqlconn.Unlock, ctx has ended", Is: harness.IsError, Call: func(l *harness.Line) error {
		conn := l.LockedConn()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		l.Die()
		return sqlconn.Unlock(ctx, conn, l.Key)
	}},
	{Name: "sqlconn.Unlock, ctx does not end", Is: harness.IsError, Bound: harness.UnlockGrace, Call: func(l *harness.Line) error {
		conn := l.LockedConn()
		l.Die()
		return sqlconn.Unlock(context.Background(), conn, l.Key)
	}},
	{Name: "sqlconn.UnlockAll", Is: harness.IsError, Call: func(l *harness.Line) error {
		conn := l.LockedConn()
		l.Die()
		return sqlconn.UnlockAll(l.Ctx, conn)
	}},
	{Name: "sqlconn.Held", Is: harness.IsEnd, Call: func(l *harness.Line) error {
		conn := l.LockedConn()
		l.Die()
		_, err := sqlconn.Held(l.Ctx, conn)
		return err
	}},
	{Name: "sqlconn.Do, opening", Is: harness.IsEnd, Call: func(l *harness.Line) error {
		l.Die()
		return l.Do(l.Ctx, l.Key, noWork)
	}},
	{Name: "sqlconn.Do, locking", Is: harness.IsEnd, Call: func(l *harness.Line) error {
		l.Warm()
		l.Die()
		return l.Do(l.Ctx, l.Key, noWork)
	}},
	{Name: "sqlconn.TryDo, opening", Is: harness.IsEnd, Call: func(l *harness.Line) error {
		l.Die()
		_, err := l.TryDo(l.Ctx, l.Key, noWork)
		return err
	}},
	{Name: "sqlconn.TryDo, locking", Is: harness.IsEnd, Call: func(l *harness.Line) error {
		l.Warm()
		l.Die()
		_, err := l.TryDo(l.Ctx, l.Key, noWork)
		return err
	}},
	{Name: "sqlconn.Do, working", Is: func(err error) bool { return harness.IsEnd(err) && harness.IsLost(err) }, Call: func(l *harness.Line) error {
		return l.Do(l.Ctx, l.Key, func(ctx context.Context, conn sqlconn.Conn) error {
			l.DieNow()
			return stuck(l, ctx, conn)
		})
	}},
	{Name: "sqlconn.TryDo, unlocking", Is: harness.IsLost, Call: func(l *harness.Line) error {
		_, err := l.TryDo(l.Ctx, l.Key, func(context.Context, sqlconn.Conn) error {
			l.Die()
			return nil
		})
		return err
	}},

	{Name: "xact.TryLock", Is: harness.IsEnd, Call: func(l *harness.Line) error {
		tx := l.Tx()
		l.Die()
		_, err := xact.TryLock(l.Ctx, tx, l.Key)
		return err
	}},
	{Name: "xact.Lock", Is: harness.IsNotAcquiredEnd, Call: func(l *harness.Line) error {
		tx := l.Tx()
		l.Die()
		return xact.Lock(l.Ctx, tx, l.Key)
	}},
	{Name: "xact.Lock with MaxWait", Is: harness.IsNotAcquired, Call: func(l *harness.Line) error {
		tx := l.Tx()
		l.Die()
		return xact.Lock(context.Background(), tx, l.Key, advisory.MaxWait(harness.Dying))
	}},
	{Name: "xact.LockAll", Is: harness.IsNotAcquiredEnd, Call: func(l *harness.Line) error {
		tx := l.Tx()
		l.Die()
		return xact.LockAll(l.Ctx, tx, []advisory.Key{l.Key, advisory.Name("another")})
	}},
	{Name: "xact.TryLockAll", Is: harness.IsEnd, Call: func(l *harness.Line) error {
		tx := l.Tx()
		l.Die()
		_, err := xact.TryLockAll(l.Ctx, tx, []advisory.Key{l.Key, advisory.Name("another")})
		return err
	}},
	{Name: "xact.TryLockAny", Is: harness.IsEnd, Call: func(l *harness.Line) error {
		tx := l.Tx()
		l.Die()
		_, _, err := xact.TryLockAny(l.Ctx, tx, []advisory.Key{l.Busy, l.Key})
		return err
	}},
	{Name: "xact.Do, opening", Is: harness.IsEnd, Call: func(l *harness.Line) error {
		l.Die()
		return l.TxDo(l.Ctx, l.Key, noTxWork)
	}},
	{Name: "xact.TryDo, opening", Is: harness.IsEnd, Call: func(l *harness.Line) error {
		l.Die()
		_, err := l.TxTryDo(l.Ctx, l.Key, noTxWork)
		return err
	}},
	{Name: "xact.Do, beginning", Is: harness.IsEnd, Call: func(l *harness.Line) error {
		l.Warm()
		l.Die()
		return l.TxDo(l.Ctx, l.Key, noTxWork)
	}},
	{Name: "xact.TryDo, beginning", Is: harness.IsEnd, Call: func(l *harness.Line) error {
		l.Warm()
		l.Die()
		_, err := l.TxTryDo(l.Ctx, l.Key, noTxWork)
		return err
	}},
	{Name: "xact.Do, working", Is: harness.IsEnd, Call: func(l *harness.Line) error {
		return l.TxDo(l.Ctx, l.Key, func(ctx context.Context, tx xact.Tx) error {
			l.DieNow()
			return stuck(l, ctx, tx)
		})
	}},
	{Name: "xact.TryDo, committing", Is: harness.IsEnd, Call: func(l *harness.Line) error {
		_, err := l.TxTryDo(l.Ctx, l.Key, func(context.Context, xact.Tx) error {
			l.Die()
			return nil
		})
		return err
	}},
	{Name: "xact.Do, rolling back", Is: harness.IsWork, Call: func(l *harness.Line) error {
		return l.TxDo(context.Background(), l.Key, func(context.Context, xact.Tx) error {
			l.Die()
			return harness.ErrWork
		})
	}},
}

// deadInTheMiddle are calls on a link that dies at one of their later statements.
var deadInTheMiddle = []harness.DeadCall{
	{Name: "sqlconn.Lock, waiting", Is: harness.IsNotAcquiredEnd, Call: func(l *harness.Line) error {
		conn := l.NewConn()
		l.DieAt(aSlice)
		return sqlconn.Lock(l.Ctx, conn, l.Busy)
	}},
	{Name: "sqlconn.Lock, naming the holders", Is: harness.IsNotAcquired, Call: func(l *harness.Line) error {
		conn := l.NewConn()
		l.DieAt(theNames)
		return sqlconn.Lock(l.Ctx, conn, l.Busy, advisory.MaxWait(0))
	}},
	{Name: "sqlconn.Do, waiting", Is: harness.IsNotAcquiredEnd, Call: func(l *harness.Line) error {
		l.DieAt(aSlice)
		return l.Do(l.Ctx, l.Busy, noWork)
	}},
	{Name: "xact.Lock, waiting", Is: harness.IsNotAcquiredEnd, Call: func(l *harness.Line) error {
		tx := l.Tx()
		l.DieAt(aTry)
		return xact.Lock(l.Ctx, tx, l.Busy)
	}},
	{Name: "xact.LockAll, waiting", Is: harness.IsNotAcquiredEnd, Call: func(l *harness.Line) error {
		tx := l.Tx()
		l.DieAt(aTry)
		return xact.LockAll(l.Ctx, tx, []advisory.Key{l.Key, l.Busy})
	}},
	{Name: "xact.LockAll, giving up", Is: harness.IsNotAcquired, Call: func(l *harness.Line) error {
		tx := l.Tx()
		l.DieAt("ROLLBACK TO SAVEPOINT")
		return xact.LockAll(l.Ctx, tx, []advisory.Key{l.Key, l.Busy}, advisory.MaxWait(0))
	}},
	{Name: "xact.Lock, naming the holders", Is: harness.IsNotAcquired, Call: func(l *harness.Line) error {
		tx := l.Tx()
		l.DieAt(theNames)
		return xact.Lock(l.Ctx, tx, l.Busy, advisory.MaxWait(0))
	}},
	{Name: "xact.Do, locking", Is: harness.IsNotAcquiredEnd, Call: func(l *harness.Line) error {
		l.DieAt("pg_try_advisory")
		return l.TxDo(l.Ctx, l.Key, noTxWork)
	}},
	{Name: "xact.TryDo, locking", Is: harness.IsEnd, Call: func(l *harness.Line) error {
		l.DieAt("pg_try_advisory")
		_, err := l.TxTryDo(l.Ctx, l.Key, noTxWork)
		return err
	}},
	{Name: "xact.Do, waiting", Is: harness.IsNotAcquiredEnd, Call: func(l *harness.Line) error {
		l.DieAt(aSlice)
		return l.TxDo(l.Ctx, l.Busy, noTxWork)
	}},
	{Name: "xact.TryDo, starting over", Is: harness.IsEnd, Call: func(l *harness.Line) error {
		l.DieAt("ROLLBACK AND CHAIN")
		_, err := l.TxTryDo(l.Ctx, l.Key, noTxWork, xact.TxOptions(&sql.TxOptions{Isolation: sql.LevelSerializable}))
		return err
	}},
}

// stuck is work on a dead link. lib/pq would not return from a statement at all.
func stuck(l *harness.Line, ctx context.Context, on execer) error {
	if l.By.Sql == "postgres" {
		<-ctx.Done()
		return ctx.Err()
	}
	_, err := on.ExecContext(ctx, "SELECT 1")
	return err
}

type execer interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}

func noWork(context.Context, sqlconn.Conn) error { return nil }
func noTxWork(context.Context, xact.Tx) error    { return nil }

// Every call on a dead link returns within the documented time, its connection can be
// closed, and once the link is back nothing is left of it.
func TestDeadLink(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	url := pgtest.NewServer(t, "max_connections=800").URL()
	lines := harness.LinesTo(t, harness.Drivers[0].Open(t, url))
	pools := harness.Drivers
	if harness.ManyDeaths {
		pools = harness.AllPools
	}
	for i, c := range append(slices.Clip(deadCalls), deadInTheMiddle...) {
		for j, d := range pools {
			for m, death := range deaths {
				if !harness.ManyDeaths && m != (i+j)%len(deaths) {
					continue // the others it dies through another driver, or not in the quick suite
				}
				lines.Call(c, d, "/"+death.name, func(t *testing.T, application string) (*harness.Pool, harness.Mortal) {
					p, link := d.Proxied(t, harness.WithParameter(t, url, "application_name", application))
					return p, proxiedLink{link, death}
				})
			}
		}
	}
	lines.Wait()
}

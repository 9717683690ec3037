package advisory_test

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
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

func (l proxiedLink) dieAt(text string) <-chan struct{} {
	return l.death.at(l.Proxy, func(m proxy.Message) bool {
		return m.Direction == proxy.Up && strings.Contains(strings.ToLower(m.Text), text)
	})
}

func (l proxiedLink) dieNow() { l.Freeze(l.death.dir) }
func (l proxiedLink) revive() { l.Thaw() }

// Statements of a wait, to die at.
const (
	aSlice   = "pg_catalog.pg_advisory_xact_lock("
	aTry     = "*/ SELECT pg_catalog.generate_series(1, CASE WHEN"
	theNames = "pg_stat_activity"
)

// deadCalls are calls on a link that dies right at their beginning.
var deadCalls = []deadCall{
	{name: "sqlconn.TryLock", is: isEnd, call: func(l *line) error {
		conn := l.conn()
		l.die()
		_, err := sqlconn.TryLock(l.ctx, conn, l.key)
		return err
	}},
	{name: "sqlconn.Lock", is: isNotAcquiredEnd, call: func(l *line) error {
		conn := l.conn()
		l.die()
		return sqlconn.Lock(l.ctx, conn, l.key)
	}},
	{name: "sqlconn.Lock with MaxWait", is: isNotAcquired, call: func(l *line) error {
		conn := l.conn()
		l.die()
		return sqlconn.Lock(context.Background(), conn, l.key, advisory.MaxWait(dying))
	}},
	{name: "sqlconn.Lock with PlainWait", is: isNotAcquiredEnd, call: func(l *line) error {
		conn := l.conn()
		l.die()
		return sqlconn.Lock(l.ctx, conn, l.key, sqlconn.PlainWait())
	}},
	{name: "sqlconn.Unlock", is: isError, call: func(l *line) error {
		conn := l.lockedConn()
		l.die()
		return sqlconn.Unlock(l.ctx, conn, l.key)
	}},
	{name: "sqlconn.Unlock, ctx has ended", is: isError, call: func(l *line) error {
		conn := l.lockedConn()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		l.die()
		return sqlconn.Unlock(ctx, conn, l.key)
	}},
	{name: "sqlconn.Unlock, ctx does not end", is: isError, bound: unlockGrace, call: func(l *line) error {
		conn := l.lockedConn()
		l.die()
		return sqlconn.Unlock(context.Background(), conn, l.key)
	}},
	{name: "sqlconn.UnlockAll", is: isError, call: func(l *line) error {
		conn := l.lockedConn()
		l.die()
		return sqlconn.UnlockAll(l.ctx, conn)
	}},
	{name: "sqlconn.Held", is: isEnd, call: func(l *line) error {
		conn := l.lockedConn()
		l.die()
		_, err := sqlconn.Held(l.ctx, conn)
		return err
	}},
	{name: "sqlconn.Do, opening", is: isEnd, call: func(l *line) error {
		l.die()
		return l.do(l.ctx, l.key, noWork)
	}},
	{name: "sqlconn.Do, locking", is: isEnd, call: func(l *line) error {
		l.warm()
		l.die()
		return l.do(l.ctx, l.key, noWork)
	}},
	{name: "sqlconn.TryDo, opening", is: isEnd, call: func(l *line) error {
		l.die()
		_, err := l.tryDo(l.ctx, l.key, noWork)
		return err
	}},
	{name: "sqlconn.TryDo, locking", is: isEnd, call: func(l *line) error {
		l.warm()
		l.die()
		_, err := l.tryDo(l.ctx, l.key, noWork)
		return err
	}},
	{name: "sqlconn.Do, working", is: func(err error) bool { return isEnd(err) && isLost(err) }, call: func(l *line) error {
		return l.do(l.ctx, l.key, func(ctx context.Context, conn sqlconn.Conn) error {
			l.dieNow()
			return l.stuck(ctx, conn)
		})
	}},
	{name: "sqlconn.TryDo, unlocking", is: isLost, call: func(l *line) error {
		_, err := l.tryDo(l.ctx, l.key, func(context.Context, sqlconn.Conn) error {
			l.die()
			return nil
		})
		return err
	}},

	{name: "xact.TryLock", is: isEnd, call: func(l *line) error {
		tx := l.tx()
		l.die()
		_, err := xact.TryLock(l.ctx, tx, l.key)
		return err
	}},
	{name: "xact.Lock", is: isNotAcquiredEnd, call: func(l *line) error {
		tx := l.tx()
		l.die()
		return xact.Lock(l.ctx, tx, l.key)
	}},
	{name: "xact.Lock with MaxWait", is: isNotAcquired, call: func(l *line) error {
		tx := l.tx()
		l.die()
		return xact.Lock(context.Background(), tx, l.key, advisory.MaxWait(dying))
	}},
	{name: "xact.LockAll", is: isNotAcquiredEnd, call: func(l *line) error {
		tx := l.tx()
		l.die()
		return xact.LockAll(l.ctx, tx, []advisory.Key{l.key, advisory.Name("another")})
	}},
	{name: "xact.TryLockAll", is: isEnd, call: func(l *line) error {
		tx := l.tx()
		l.die()
		_, err := xact.TryLockAll(l.ctx, tx, []advisory.Key{l.key, advisory.Name("another")})
		return err
	}},
	{name: "xact.TryLockAny", is: isEnd, call: func(l *line) error {
		tx := l.tx()
		l.die()
		_, _, err := xact.TryLockAny(l.ctx, tx, []advisory.Key{l.busy, l.key})
		return err
	}},
	{name: "xact.Do, opening", is: isEnd, call: func(l *line) error {
		l.die()
		return l.txDo(l.ctx, l.key, noTxWork)
	}},
	{name: "xact.TryDo, opening", is: isEnd, call: func(l *line) error {
		l.die()
		_, err := l.txTryDo(l.ctx, l.key, noTxWork)
		return err
	}},
	{name: "xact.Do, beginning", is: isEnd, call: func(l *line) error {
		l.warm()
		l.die()
		return l.txDo(l.ctx, l.key, noTxWork)
	}},
	{name: "xact.TryDo, beginning", is: isEnd, call: func(l *line) error {
		l.warm()
		l.die()
		_, err := l.txTryDo(l.ctx, l.key, noTxWork)
		return err
	}},
	{name: "xact.Do, working", is: isEnd, call: func(l *line) error {
		return l.txDo(l.ctx, l.key, func(ctx context.Context, tx xact.Tx) error {
			l.dieNow()
			return l.stuck(ctx, tx)
		})
	}},
	{name: "xact.TryDo, committing", is: isEnd, call: func(l *line) error {
		_, err := l.txTryDo(l.ctx, l.key, func(context.Context, xact.Tx) error {
			l.die()
			return nil
		})
		return err
	}},
	{name: "xact.Do, rolling back", is: isWork, call: func(l *line) error {
		return l.txDo(context.Background(), l.key, func(context.Context, xact.Tx) error {
			l.die()
			return errWork
		})
	}},
}

// deadInTheMiddle are calls on a link that dies at one of their later statements.
var deadInTheMiddle = []deadCall{
	{name: "sqlconn.Lock, waiting", is: isNotAcquiredEnd, call: func(l *line) error {
		conn := l.conn()
		l.dieAt(aSlice)
		return sqlconn.Lock(l.ctx, conn, l.busy)
	}},
	{name: "sqlconn.Lock, naming the holders", is: isNotAcquired, call: func(l *line) error {
		conn := l.conn()
		l.dieAt(theNames)
		return sqlconn.Lock(l.ctx, conn, l.busy, advisory.MaxWait(0))
	}},
	{name: "sqlconn.Do, waiting", is: isNotAcquiredEnd, call: func(l *line) error {
		l.dieAt(aSlice)
		return l.do(l.ctx, l.busy, noWork)
	}},
	{name: "xact.Lock, waiting", is: isNotAcquiredEnd, call: func(l *line) error {
		tx := l.tx()
		l.dieAt(aTry)
		return xact.Lock(l.ctx, tx, l.busy)
	}},
	{name: "xact.LockAll, waiting", is: isNotAcquiredEnd, call: func(l *line) error {
		tx := l.tx()
		l.dieAt(aTry)
		return xact.LockAll(l.ctx, tx, []advisory.Key{l.key, l.busy})
	}},
	{name: "xact.LockAll, giving up", is: isNotAcquired, call: func(l *line) error {
		tx := l.tx()
		l.dieAt("ROLLBACK TO SAVEPOINT")
		return xact.LockAll(l.ctx, tx, []advisory.Key{l.key, l.busy}, advisory.MaxWait(0))
	}},
	{name: "xact.Lock, naming the holders", is: isNotAcquired, call: func(l *line) error {
		tx := l.tx()
		l.dieAt(theNames)
		return xact.Lock(l.ctx, tx, l.busy, advisory.MaxWait(0))
	}},
	{name: "xact.Do, locking", is: isNotAcquiredEnd, call: func(l *line) error {
		l.dieAt("pg_try_advisory")
		return l.txDo(l.ctx, l.key, noTxWork)
	}},
	{name: "xact.TryDo, locking", is: isEnd, call: func(l *line) error {
		l.dieAt("pg_try_advisory")
		_, err := l.txTryDo(l.ctx, l.key, noTxWork)
		return err
	}},
	{name: "xact.Do, waiting", is: isNotAcquiredEnd, call: func(l *line) error {
		l.dieAt(aSlice)
		return l.txDo(l.ctx, l.busy, noTxWork)
	}},
	{name: "xact.TryDo, starting over", is: isEnd, call: func(l *line) error {
		l.dieAt("ROLLBACK AND CHAIN")
		_, err := l.txTryDo(l.ctx, l.key, noTxWork, xact.TxOptions(&sql.TxOptions{Isolation: sql.LevelSerializable}))
		return err
	}},
}

// stuck is work on a dead link. lib/pq would not return from a statement at all.
func (l *line) stuck(ctx context.Context, on execer) error {
	if l.driver.sql == "postgres" {
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
	lines := linesTo(t, drivers[0].open(t, url))
	pools := drivers
	if manyDeaths {
		pools = allPools
	}
	for i, c := range append(slices.Clip(deadCalls), deadInTheMiddle...) {
		for j, d := range pools {
			for m, death := range deaths {
				if !manyDeaths && m != (i+j)%len(deaths) {
					continue // the others it dies through another driver, or not in the quick suite
				}
				lines.call(c, d, "/"+death.name, func(t *testing.T, application string) (*pool, mortal) {
					p, link := d.proxied(t, withParameter(t, url, "application_name", application))
					return p, proxiedLink{link, death}
				})
			}
		}
	}
	lines.wait()
}

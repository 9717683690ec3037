package locker

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/pooler"
	"github.com/pgadvisory/pgadvisory/internal/statement"
)

const (
	// probeTime bounds the first probe of a session that is being opened.
	probeTime = 3 * time.Second
	// checkTime bounds all probes before a session's first lock.
	checkTime = 30 * time.Second
	// checkPause is the pause between two of them.
	checkPause = 50 * time.Millisecond
)

// checkDue reports whether a check is due.
func (l *Locker) checkDue() bool {
	if l.settings.NoServerCheck {
		return false
	}
	return !pooler.Known(l.db, pooler.Direct)
}

// checkServer checks, on conn, whether locks exclude, before conn is used for anything else. d limits
// the probe. After an error other than an uncheckedError conn must not be used: it leads through a
// pooler, or a lock may be on it.
func (l *Locker) checkServer(ctx context.Context, conn *sql.Conn, route pooler.Route, d time.Duration) error {
	second, err := pooler.Second(ctx, l.db)
	if err != nil {
		return uncheckedError{err}
	}
	defer second.Close()
	own := pooler.On(ctx, conn)
	err = l.probe(ctx, own, second, route, d)
	if e, ok := errors.AsType[uncheckedError](err); ok && own.Doubt() {
		if lockfn.Canceled(e.error) { // not wrapped: callers would begin again at once, without end
			return fmt.Errorf("look for a pooler (is statement_timeout too short?): %v", e.error)
		}
		return fmt.Errorf("look for a pooler: %w", e.error)
	}
	return err
}

// checkFirst checks the server before the first lock of the pool, and before the first of a pool that
// led to the server directly and now leads through a proxy. On a direct connection it returns an
// uncheckedError if the check could not be made, and the caller makes it later. On others, and if the
// driver does not show it, no lock is given out before the check has succeeded. Then checkFirst
// repeats the check for up to checkTime, each time with more time. A server that is not PostgreSQL
// counts as one of those others.
func (l *Locker) checkFirst(ctx context.Context, conn *sql.Conn) error {
	route := pooler.Indirect
	if told, ok := pooler.On(ctx, conn).ToldPID(); ok {
		rows, err := statement.Session{Ctx: ctx, On: conn}.Exec(lockfn.HasPID(told))
		if err != nil {
			return pooler.Refusal(err)
		}
		if rows == lockfn.SamePIDOnPrimary {
			route = pooler.Direct
		}
	}
	direct := route == pooler.Direct
	if direct && pooler.Known(l.db, route) {
		return nil
	}
	if st := l.db.Stats(); direct && st.MaxOpenConnections > 0 && st.InUse >= st.MaxOpenConnections {
		return uncheckedError{fmt.Errorf("all %d connections of the pool are in use", st.InUse)}
	}
	end := time.Now().Add(checkTime)
	for d := probeTime; ; d *= 2 {
		err := l.checkServer(ctx, conn, route, min(d, max(time.Until(end), probeTime)))
		e, missing := errors.AsType[uncheckedError](err)
		if !missing || direct {
			return err
		}
		l.rememberUnchecked(e)
		if time.Now().After(end) { // not wrapped: it is no longer one to go on after
			return fmt.Errorf("no lock is given out before the check: %v", e)
		}
		select {
		case <-ctx.Done():
			return bound.Cause(ctx)
		case <-time.After(checkPause):
		}
	}
}

// probe returns an [*advisory.UnsafeServerError] or an uncheckedError, if not nil. route is own's.
func (l *Locker) probe(ctx context.Context, own, second *pooler.Link, route pooler.Route, d time.Duration) error {
	ctx, stop := context.WithTimeout(ctx, d)
	defer stop()
	_, err := pooler.ProbeLinks(ctx, own, second)
	switch {
	case err == nil:
		pooler.Remember(l.db, route)
		l.rememberUnchecked(nil)
	case !errors.Is(err, advisory.ErrUnsafeServer):
		err = uncheckedError{err}
	}
	return err
}

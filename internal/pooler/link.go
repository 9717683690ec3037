package pooler

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/dbconn"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/statement"
)

// A Link is a connection for a probe. One goroutine at a time may use it.
type Link struct {
	Conn     *sql.Conn
	owner    context.Context // of its statements, if it is somebody else's connection
	raw      dbconn.Driver
	stuck    <-chan struct{} // closed when the statement has returned that was walked away from
	doubt    bool
	answered time.Time
}

// On returns the Link of a connection that its owner closes, and needs afterwards. Its statements
// end only with ctx. If one ended with the ctx of Exec, the driver would close the connection. So
// Exec returns when the driver does.
func On(ctx context.Context, conn *sql.Conn) *Link { return &Link{Conn: conn, owner: ctx} }

// secondTime limits the wait for the second connection of a probe.
const secondTime = time.Second

// Second is [Open] for the second connection, with a short limit.
func Second(ctx context.Context, db *sql.DB) (*Link, error) {
	ctx, stop := context.WithTimeout(ctx, secondTime)
	defer stop()
	return Open(ctx, db)
}

// Open takes a connection from a pool. It fails if ctx ends first.
func Open(ctx context.Context, db *sql.DB) (*Link, error) {
	opening := &Link{}
	l, err := bound.Call(ctx, func(ctx context.Context) (_ *Link, err error) {
		opening.Conn, err = dbconn.Take(ctx, db, func(conn *sql.Conn) error { return conn.Raw(opening.raw.Keep) })
		return opening, err
	}, opening.GiveUp, func(l *Link, err error) {
		if err == nil {
			l.Close()
		}
	})
	if err != nil {
		if st := db.Stats(); st.MaxOpenConnections > 0 && st.InUse >= st.MaxOpenConnections {
			return nil, fmt.Errorf("all %d connections of the pool are in use: %w", st.MaxOpenConnections, err)
		}
		return nil, err
	}
	return l, nil
}

// Exec is an [Exec] that returns when ctx ends, even if the driver blocks. For a Link of [On] it
// checks ctx only before the statement.
func (l *Link) Exec(ctx context.Context, text string) (rows int64, err error) {
	if l.stuck != nil || ctx.Err() != nil {
		return 0, bound.ErrNoAnswer
	}
	done := make(chan struct{})
	var n int64
	var failed error
	sent := time.Now()
	call := func() {
		defer close(done)
		n, failed = statement.Session{Ctx: ctx, On: l.Conn}.Exec(text)
	}
	if l.owner != nil {
		ctx = l.owner
		call()
	} else {
		go call()
	}
	select {
	case <-done:
		if failed == nil || lockfn.SQLState(failed) != "" {
			l.answered = sent
		}
		// A statement that is cancelled keeps the lock that it has taken.
		if failed != nil && (lockfn.SQLState(failed) == "" || lockfn.Canceled(failed)) {
			l.doubt = true
		}
		return n, failed
	case <-ctx.Done():
		l.stuck, l.doubt = done, true
		return 0, bound.ErrNoAnswer
	}
}

// Doubt reports whether the session may hold something unknown, or may be gone.
func (l *Link) Doubt() bool { return l.doubt }

// Answered returns when the last answered statement was sent. It is zero if there was none.
func (l *Link) Answered() time.Time { return l.answered }

// GiveUp closes the network connection of a statement that does not return.
func (l *Link) GiveUp() { l.raw.GiveUp() }

// Close returns the connection to the pool. If its state is in doubt, Close destroys it, on another
// goroutine if a statement has not returned.
func (l *Link) Close() {
	if l.stuck == nil {
		l.close()
		return
	}
	go func() {
		select {
		case <-l.stuck:
		case <-time.After(bound.Abort):
			l.raw.GiveUp()
			<-l.stuck
		}
		l.close()
	}()
}

func (l *Link) close() {
	if l.doubt {
		dbconn.Discard(l.Conn)
	}
	l.Conn.Close()
}

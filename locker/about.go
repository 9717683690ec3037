package locker

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/timeline"
)

// about is what a session asks of its server: see [lockfn.About].
type about struct {
	pid           int
	recovery      bool
	version       string
	table         int64
	userTimeout   int64
	tcp           bool
	deadlock      int64
	versionNumber int
	system        int64
	timeline      string // empty: in recovery, or the server did not permit the question
}

// ask asks. If the server refuses the statement, as one may that restricts functions of the
// write-ahead log, it asks for the rest.
func (a *about) ask(ctx context.Context, conn *sql.Conn) error {
	err := a.read(conn.QueryRowContext(ctx, lockfn.About))
	if err != nil && !lockfn.LinkGone(err) && !lockfn.Canceled(err) {
		err = a.read(conn.QueryRowContext(ctx, lockfn.AboutAlone))
	}
	return err
}

func (a *about) read(row *sql.Row) error {
	return row.Scan(&a.pid, &a.recovery, &a.version, &a.table, &a.userTimeout, &a.tcp, &a.deadlock, &a.versionNumber, &a.system, &a.timeline)
}

// newestTimeline returns an error if the server is an old primary: this pool has led to a newer
// timeline of its system before.
func (l *Locker) newestTimeline(a about) error {
	if a.timeline == "" {
		return nil
	}
	t, err := lockfn.ReadTimeline(a.timeline)
	if err != nil {
		return err
	}
	if newest := timeline.Note(l.db, a.system, t); newest > t {
		return &advisory.UnsafeServerError{Reason: advisory.StalePrimary, Detail: fmt.Sprintf(
			"it is on timeline %d of system %d, and this pool has led to timeline %d: make it a standby of the new primary, or, if it is the right one, restart this program", t, a.system, newest)}
	}
	return nil
}

// superseded returns an error if this pool has meanwhile led to a newer timeline of the system:
// another session or Locker has. The mutex is held.
func (p *proof) superseded() error {
	if p.about.timeline == "" {
		return nil
	}
	return p.l.newestTimeline(p.about)
}

// checkTimeline is superseded for callers without the mutex.
func (p *proof) checkTimeline() error {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	return p.superseded()
}

// stalePrimary reports whether err is that of an old primary.
func stalePrimary(err error) bool {
	unsafe, ok := errors.AsType[*advisory.UnsafeServerError](err)
	return ok && unsafe.Reason == advisory.StalePrimary
}

// tokensFit returns an error if the server has no tokens for a Locker that needs them.
func (l *Locker) tokensFit(a about) error {
	if !l.settings.Fencing {
		return nil
	}
	if a.versionNumber < lockfn.OldestForTokens {
		return fmt.Errorf("%w: WithFencing needs PostgreSQL 13 or later, and version() is %s", lockfn.ErrNoToken, a.version)
	}
	if a.timeline == "" {
		return nil // the first token fails with the server's error
	}
	t, err := lockfn.ReadTimeline(a.timeline)
	if err != nil {
		return err
	}
	return lockfn.TokenFits(t, l.settings.TokenEpoch)
}

package wait

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/lockfn"
	"github.com/pgadvisory/pgadvisory/internal/settings"
	"github.com/pgadvisory/pgadvisory/internal/statement"
)

var key = advisory.Int64(4820)

// A server answers as PostgreSQL would while another holds the key, in the time of a
// synctest bubble.
type server struct {
	free   time.Time           // when the key will be
	circle func() (rows int64) // the answer of lockfn.Deadlock; nil: no circle
	slice  func() (rows int64, err error)

	slices, tries, looks, asks int
	open                       int // savepoints
	failed                     bool
	last                       string // statement
}

var lockTimeout = regexp.MustCompile(`'lock_timeout', '(\d+)'`)

func (s *server) ExecContext(ctx context.Context, text string, _ ...any) (sql.Result, error) {
	s.last = text
	rows, err := s.exec(text)
	return driver.RowsAffected(rows), err
}

func (s *server) exec(text string) (int64, error) {
	timeout := lockTimeout.FindStringSubmatch(text)
	switch {
	case text == lockfn.Savepoint:
		s.open++
		return 0, nil
	case text == lockfn.Drop, text == lockfn.Keep && !s.failed:
		s.open--
		s.failed = false
		return 0, nil
	case s.open > 0 && s.failed:
		return 0, sqlError(lockfn.InFailedTransaction)
	case strings.Contains(text, "pg_stat_clear_snapshot"):
		s.looks++
		if s.circle != nil {
			return s.circle(), nil
		}
		return 0, nil
	case strings.Contains(text, lockfn.Blocks):
		return 1, nil
	case timeout != nil:
		s.slices++
		if s.slice != nil {
			return s.slice()
		}
		ms, _ := strconv.Atoi(timeout[1])
		end := time.Now().Add(time.Duration(ms) * time.Millisecond)
		if s.free.After(end) {
			time.Sleep(time.Until(end))
			return lockfn.SliceTimeout, nil
		}
		time.Sleep(time.Until(s.free))
		return lockfn.SliceGranted, nil
	}
	s.tries++
	if time.Now().Before(s.free) {
		return 0, nil
	}
	return 1, nil
}

func (s *server) QueryContext(_ context.Context, text string, _ ...any) (*sql.Rows, error) {
	s.last = text
	s.asks++
	s.failed = true
	return nil, errNotTold
}

// errNotTold is an error of the server, after which a transaction cannot be used.
var errNotTold sqlError = "57014"

type sqlError string

func (e sqlError) Error() string    { return "this server does not tell who holds the key" }
func (e sqlError) SQLState() string { return string(e) }

// waits reports whether pg_stat_activity shows the session as a waiter.
func (s *server) waits() bool { return strings.HasPrefix(s.last, "/*pgadvisory waits") }

// newWait returns a wait on s of which ctx and MaxWait are the bounds.
func newWait(t *testing.T, s *server, ctx context.Context, opts ...advisory.ConnOption) *Wait {
	t.Helper()
	settings, err := settings.Conn(opts)
	if err != nil {
		t.Fatal(err)
	}
	limit, cancel := Limit(ctx, settings)
	t.Cleanup(cancel)
	late, stop := bound.Context(limit)
	t.Cleanup(stop)
	return &Wait{
		Session: statement.Session{Ctx: late, On: s}, Caller: ctx, Limit: limit,
		Settings: settings, Key: key, Start: time.Now(),
	}
}

// inSlices and byTries are the two kinds of round.
func inSlices(w *Wait) error {
	return w.Until(func() (bool, error) { return w.Slice(lockfn.MaxSlice) })
}

func byTries(w *Wait) error {
	return w.Until(func() (bool, error) {
		w.Pause()
		rows, err := w.Exec(lockfn.Try(w.Key, w.Settings.Mode))
		return rows == 1, err
	})
}

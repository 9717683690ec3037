package advisory_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/sqlconn"
	"github.com/pgadvisory/pgadvisory/xact"
)

const (
	// grace is what is documented: how long after its context's end a call returns.
	grace = 2 * time.Second
	// unlockGrace is the same for an Unlock, from its beginning, whatever its context.
	unlockGrace = 6 * time.Second
	// slack is for a busy machine, before a call is given up. A call without a bound hangs until the link is back.
	slack = 12 * time.Second

	// dying is for how long a link is dead before the context of a call ends.
	dying = 2 * time.Second
)

// A line is a pool over a link that dies, for one call.
type line struct {
	*testing.T
	*pool
	key, busy advisory.Key    // of this line alone; another session has busy
	ctx       context.Context // ends a while after the link has died
	link      mortal

	end     context.CancelCauseFunc
	died    time.Time
	dead    chan struct{}
	endings []ending
}

// A mortal is a link that can die.
type mortal interface {
	// dieAt has it die at the next message that contains text, in lower case, and
	// tells when it is dead.
	dieAt(text string) <-chan struct{}
	dieNow()
	revive()
}

// An ending is what is left for the caller to do after a call.
type ending struct {
	what  string
	do    func() error
	hangs bool // as long as the link is dead: documented
}

// die has the link die at the next thing that is sent.
func (l *line) die() { l.dieAt("") }

func (l *line) dieAt(text string) {
	dead := l.link.dieAt(strings.ToLower(text))
	go func() {
		select {
		case <-dead:
			l.isDead()
		case <-l.Context().Done():
		}
	}()
}

func (l *line) dieNow() {
	l.link.dieNow()
	l.isDead()
}

func (l *line) isDead() {
	l.died = time.Now()
	close(l.dead)
	time.AfterFunc(dying, func() { l.end(context.DeadlineExceeded) })
}

func (l *line) conn() sqlconn.Conn {
	l.Helper()
	conn, err := l.pin(context.Background())
	if err != nil {
		l.Fatal(err)
	}
	l.endings = append(l.endings, ending{what: "Close of the connection", do: conn.Close})
	return conn
}

func (l *line) lockedConn() sqlconn.Conn {
	l.Helper()
	conn := l.conn()
	if !tryLock(l, conn, l.key) {
		l.Fatal("not free")
	}
	return conn
}

// tx begins a transaction of the caller's, whose Rollback may hang in lib/pq.
func (l *line) tx() xact.Tx {
	l.Helper()
	tx, err := l.begin(context.Background(), nil)
	if err != nil {
		l.Fatal(err)
	}
	l.endings = append(l.endings, ending{what: "Rollback", do: tx.Rollback, hangs: l.driver.sql == "postgres"})
	return tx
}

// warm leaves an idle connection in the pool.
func (l *line) warm() {
	l.Helper()
	if err := l.Ping(); err != nil {
		l.Fatal(err)
	}
}

// A deadCall is a call on a link that dies.
type deadCall struct {
	name  string
	call  func(l *line) error // gets ready, has the link die, calls with the line's ctx
	is    func(err error) bool
	bound time.Duration // from the link's death to the return; else dying and grace
}

// run makes the call, does what is left to the caller, and has the link revive. It
// fails the test if any of that hangs, and returns how long after the end of its time
// the call returned.
func (l *line) run(c deadCall) (late time.Duration) {
	ctx, end := context.WithCancelCause(context.Background())
	l.ctx, l.end, l.dead = ctx, end, make(chan struct{})
	defer end(nil)
	bound := dying + grace
	if c.bound > 0 {
		bound = c.bound
	}

	returned := make(chan struct{})
	go func() {
		select {
		case <-l.dead:
		case <-returned:
			return
		case <-time.After(2 * patience): // the statement at which it was to die is not sent any more
			end(nil)
			return
		}
		select {
		case <-returned:
		case <-time.After(bound + slack):
			l.Errorf("has not returned %v after the link died", bound+slack)
			l.link.revive()
		}
	}()
	err := c.call(l)
	at := time.Now()
	close(returned)
	select {
	case <-l.dead:
		late = at.Sub(l.died) - bound + grace
	case <-time.After(slack):
		l.Errorf("the link has not died: %v", err)
	}
	if !c.is(err) {
		l.Errorf("error: %v", err)
	}

	done := make([]chan struct{}, len(l.endings))
	for i, e := range l.endings {
		done[i] = make(chan struct{})
		go func() {
			defer close(done[i])
			e.do()
		}()
		if !e.hangs {
			within(l, slack, done[i], e.what)
		}
	}
	l.link.revive()
	for i, e := range l.endings {
		within(l, patience, done[i], e.what+", with the link back")
	}
	return late
}

func within(t testing.TB, d time.Duration, done <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(d):
		t.Errorf("not within %v: %s", d, what)
	}
}

var errWork = errors.New("the work failed")

func isEnd(err error) bool            { return errors.Is(err, context.Canceled) }
func isError(err error) bool          { return err != nil }
func isWork(err error) bool           { return err == errWork }
func isLost(err error) bool           { return errors.Is(err, advisory.ErrLost) }
func isNotAcquired(err error) bool    { return errors.Is(err, advisory.ErrNotAcquired) }
func isNotAcquiredEnd(err error) bool { return isNotAcquired(err) && isEnd(err) }

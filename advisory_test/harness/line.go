package harness

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
	// UnlockGrace is the same for an Unlock, from its beginning, whatever its context.
	UnlockGrace = 6 * time.Second
	// Slack is for a busy machine, before a call is given up. A call without a bound hangs until the link is back.
	Slack = 12 * time.Second

	// Dying is for how long a link is dead before the context of a call ends.
	Dying = 2 * time.Second
)

// A Line is a pool over a link that dies, for one call.
type Line struct {
	*testing.T
	*Pool
	Key, Busy advisory.Key    // of this line alone; another session has Busy
	Ctx       context.Context // ends a while after the link has died
	Link      Mortal

	End     context.CancelCauseFunc
	Died    time.Time
	Dead    chan struct{}
	Endings []ending
}

// A Mortal is a link that can die.
type Mortal interface {
	// DieAt has it die at the next message that contains text, in lower case, and
	// closes the channel when it is dead.
	DieAt(text string) <-chan struct{}
	DieNow()
	Revive()
}

// An ending is what is left for the caller to do after a call.
type ending struct {
	what  string
	do    func() error
	hangs bool // as long as the link is dead: documented
}

// Die has the link die at the next thing that is sent.
func (l *Line) Die() { l.DieAt("") }

func (l *Line) DieAt(text string) {
	dead := l.Link.DieAt(strings.ToLower(text))
	go func() {
		select {
		case <-dead:
			l.isDead()
		case <-l.Context().Done():
		}
	}()
}

func (l *Line) DieNow() {
	l.Link.DieNow()
	l.isDead()
}

func (l *Line) isDead() {
	l.Died = time.Now()
	close(l.Dead)
	time.AfterFunc(Dying, func() { l.End(context.DeadlineExceeded) })
}

func (l *Line) NewConn() sqlconn.Conn {
	l.Helper()
	conn, err := l.Pin(context.Background())
	if err != nil {
		l.Fatal(err)
	}
	l.Endings = append(l.Endings, ending{what: "Close of the connection", do: conn.Close})
	return conn
}

func (l *Line) LockedConn() sqlconn.Conn {
	l.Helper()
	conn := l.NewConn()
	if !TryLock(l, conn, l.Key) {
		l.Fatal("not free")
	}
	return conn
}

// Tx begins a transaction of the caller's, whose Rollback may hang in lib/pq.
func (l *Line) Tx() xact.Tx {
	l.Helper()
	tx, err := l.NewTx(context.Background(), nil)
	if err != nil {
		l.Fatal(err)
	}
	l.Endings = append(l.Endings, ending{what: "Rollback", do: tx.Rollback, hangs: l.By.Sql == "postgres"})
	return tx
}

// Warm leaves an idle connection in the pool.
func (l *Line) Warm() {
	l.Helper()
	if err := l.Ping(); err != nil {
		l.Fatal(err)
	}
}

// A DeadCall is a call on a link that dies.
type DeadCall struct {
	Name  string
	Call  func(l *Line) error // gets ready, has the link die, calls with the line's ctx
	Is    func(err error) bool
	Bound time.Duration // from the link's death to the return; else dying and grace
}

// Start makes the call, does what is left to the caller, and has the link revive. It
// fails the test if any of that hangs, and returns how long after the end of its time
// the call returned.
func (l *Line) Start(c DeadCall) (late time.Duration) {
	ctx, end := context.WithCancelCause(context.Background())
	l.Ctx, l.End, l.Dead = ctx, end, make(chan struct{})
	defer end(nil)
	bound := Dying + grace
	if c.Bound > 0 {
		bound = c.Bound
	}

	returned := make(chan struct{})
	go l.guard(returned, bound+Slack)
	err := c.Call(l)
	at := time.Now()
	close(returned)
	select {
	case <-l.Dead:
		late = at.Sub(l.Died) - bound + grace
	case <-time.After(Slack):
		l.Errorf("the link has not died: %v", err)
	}
	if !c.Is(err) {
		l.Errorf("error: %v", err)
	}
	l.finish()
	return late
}

// guard fails the test, and has the link revive, if the call has not returned at most after the link
// died. It ends the call's ctx if the link does not die.
func (l *Line) guard(returned <-chan struct{}, most time.Duration) {
	select {
	case <-l.Dead:
	case <-returned:
		return
	case <-time.After(2 * Patience): // the statement at which it was to die is not sent any more
		l.End(nil)
		return
	}
	select {
	case <-returned:
	case <-time.After(most):
		l.Errorf("has not returned %v after the link died", most)
		l.Link.Revive()
	}
}

// finish does what is left to the caller after the call, and has the link revive. What may hang
// while the link is dead must return afterwards.
func (l *Line) finish() {
	done := make([]chan struct{}, len(l.Endings))
	for i, e := range l.Endings {
		done[i] = make(chan struct{})
		go func() {
			defer close(done[i])
			e.do()
		}()
		if !e.hangs {
			within(l, Slack, done[i], e.what)
		}
	}
	l.Link.Revive()
	for i, e := range l.Endings {
		within(l, Patience, done[i], e.what+", with the link back")
	}
}

func within(t testing.TB, d time.Duration, done <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(d):
		t.Errorf("not within %v: %s", d, what)
	}
}

var ErrWork = errors.New("the work failed")

func IsEnd(err error) bool            { return errors.Is(err, context.Canceled) }
func IsError(err error) bool          { return err != nil }
func IsWork(err error) bool           { return err == ErrWork }
func IsLost(err error) bool           { return errors.Is(err, advisory.ErrLost) }
func IsNotAcquired(err error) bool    { return errors.Is(err, advisory.ErrNotAcquired) }
func IsNotAcquiredEnd(err error) bool { return IsNotAcquired(err) && IsEnd(err) }

package dbconn

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// answerTime bounds the first answer of a connection that was idle in the pool. database/sql
// would wait for it as long as for a new connection, whose host may be far away.
const answerTime = time.Second

// errSilent is returned for an idle connection that does not answer in answerTime.
var errSilent = errors.New("an idle connection of the pool does not answer")

// An idleAnswer is what became of one connection that was idle.
type idleAnswer struct {
	conn *sql.Conn // nil after an error
	err  error
}

// firstIdle takes n connections from the pool at once, which are idle if nobody else takes them, and
// returns the first that answers. Those that answer later go back, and the others are destroyed. It
// returns in little more than answerTime, though a driver may not.
func firstIdle(ctx context.Context, db *sql.DB, n int) (*sql.Conn, error) {
	short, stop := context.WithTimeout(context.WithoutCancel(ctx), answerTime)
	// Those that answer later are not to be destroyed because the caller is done with ctx.
	defer context.AfterFunc(ctx, stop)()
	answers := make(chan idleAnswer, n)
	for range n {
		go func() { answerOf(short, db, answers) }()
	}
	late := time.NewTimer(answerTime + 2*closing)
	defer late.Stop()
	var err error
	for due := n; due > 0; due-- {
		select {
		case a := <-answers:
			if a.err == nil {
				go giveBack(answers, due-1, stop)
				return a.conn, nil
			}
			if err = errors.Join(err, a.err); ctx.Err() == nil && short.Err() != nil {
				err = errSilent
			}
		case <-late.C:
			go giveBack(answers, due, stop)
			return nil, errSilent
		}
	}
	stop()
	return nil, err
}

// giveBack returns to the pool the connections that answer when another has been taken.
func giveBack(answers <-chan idleAnswer, due int, stop func()) {
	defer stop()
	for range due {
		if a := <-answers; a.err == nil {
			a.conn.Close()
		}
	}
}

// answerOf takes a connection and sends its answer to answers. pgx asks it for one itself, before
// database/sql has the connection. lib/pq may not return by ctx, and is given up.
func answerOf(ctx context.Context, db *sql.DB, answers chan<- idleAnswer) {
	conn, err := db.Conn(ctx)
	if err != nil {
		answers <- idleAnswer{nil, err}
		return
	}
	var below Driver
	err = conn.Raw(below.Keep)
	if err == nil {
		end, _ := ctx.Deadline()
		stuck := time.AfterFunc(time.Until(end)+closing, below.GiveUp)
		_, err = conn.ExecContext(ctx, ask)
		if !stuck.Stop() || err == nil && ctx.Err() != nil { // a driver may report success on a dead connection
			err = errors.Join(err, errSilent)
		}
	}
	if err != nil {
		answers <- idleAnswer{nil, err}
		destroy(conn, err)
		return
	}
	answers <- idleAnswer{conn, nil}
}

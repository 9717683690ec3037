//go:build linux || darwin || freebsd

package main

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// keeperArg is the first argument of a keeper. The second is the pid of the process that it serves.
// Both are visible in the list of processes.
const keeperArg = "(keeps-the-lock-of)"

func keeperWanted() bool { return len(os.Args) == 3 && os.Args[1] == keeperArg }

// A keep holds a lock for another process.
type keep struct {
	order order
	in    <-chan request
	out   *json.Encoder
}

// keeper is the main function of the process that holds the lock. It ends when the other process
// does. It ignores signals, so it survives those that are sent to all processes of a unit or a
// container.
func keeper(in io.Reader, out io.Writer) int {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2)
	lines := json.NewDecoder(in)
	k := &keep{out: json.NewEncoder(out)}
	if err := lines.Decode(&k.order); err != nil {
		return exitUsage
	}
	k.in = listen[request](io.MultiReader(lines.Buffered(), in))
	scope := k.session
	if k.order.Transaction {
		scope = k.transaction
	}
	switch err := scope(); {
	case err == nil:
		k.send(answer{Released: true})
	default:
		k.send(answer{Refused: refuse(err)})
	}
	return 0
}

func (k *keep) send(a answer) { k.out.Encode(a) } // an error is ignored: if the other process is gone, k.in is closed

// acquiring returns a ctx that ends if the other process ends before acquired is called.
func (k *keep) acquiring() (ctx context.Context, acquired func()) {
	ctx, cancel := context.WithCancel(context.Background())
	stop, stopped := make(chan struct{}), make(chan struct{})
	in := k.in
	go func() {
		defer close(stopped)
		select {
		case <-in: // no request comes before the lock is held, so the other process has ended
			cancel()
		case <-stop:
		}
	}()
	return ctx, func() { close(stop); <-stopped }
}

// hold keeps a lock until the lock is to be released, or is lost. When it returns, the command has
// ended.
func (k *keep) hold(h held, lost <-chan struct{}, cause func() error) error {
	keepUntil := time.NewTimer(k.order.HoldAtLeast)
	defer keepUntil.Stop()
	k.send(answer{Held: &h})
	group := 0 // the process group of the command, while it runs
	ran := false
	var due <-chan time.Time // set when the command has ended
	for {
		select {
		case r, ok := <-k.in:
			switch {
			case !ok: // the other process is gone
				if !ran {
					return nil
				}
				if group != 0 {
					killGroup(group, reportForeign)
				}
				group, k.in, due = 0, nil, keepUntil.C
			case r.Now:
				return nil
			case r.Ended:
				group, due = 0, keepUntil.C
			case r.Child != 0:
				group, ran = r.Child, true
			}
		case <-due:
			return nil
		case <-lost:
			err := cause()
			k.send(answer{Lost: k.order.Key.String() + ": " + lossText(err)})
			if due == nil {
				k.awaitEnd(group)
			}
			return err
		}
	}
}

// lossText returns the text of a loss. It adds that the session is gone, if the driver's error
// shows that.
func lossText(err error) string {
	text := strings.TrimPrefix(err.Error(), "pgadvisory: ")
	why, ok := strings.CutPrefix(text, strings.TrimPrefix(advisory.ErrLost.Error(), "pgadvisory: ")+": ")
	if !ok || !sessionGone(err) {
		return text
	}
	return "lock lost: the session that held it is gone: " + why
}

// sessionGone reports whether the driver's error shows that the session is gone. A time-out does
// not: the server may still have the session.
func sessionGone(err error) bool {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.SeverityUnlocalized == "FATAL" || e.SeverityUnlocalized == "PANIC"
	}
	e, ok := errors.AsType[*net.OpError](err)
	return ok && !e.Timeout() || errors.Is(err, driver.ErrBadConn) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// awaitEnd waits until the other process has ended a command whose lock is lost. If the other process
// does not, because it was stopped or killed, awaitEnd kills the command.
func (k *keep) awaitEnd(group int) {
	late := time.After(k.order.Grace + time.Second)
	for {
		select {
		case r, ok := <-k.in:
			switch {
			case ok && r.Child != 0:
				group = r.Child
			case ok:
				return
			default:
				k.in = nil
				if group != 0 {
					killGroup(group, reportForeign)
				}
				return
			}
		case <-late:
			if group != 0 {
				killGroup(group, reportForeign)
			}
			return
		}
	}
}

// reportForeign prints errForeign without waiting for a slow reader.
func reportForeign() { go (&program{err: os.Stderr}).report(errForeign) }

func refuse(err error) *refusal {
	code, text := explain(err)
	return &refusal{Code: code, Text: text, Busy: code == exitNo}
}

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

	"github.com/lib/pq"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// keeperArg is what a keeper is started with, and the pid of the process for which it is, to
// be seen in the list of processes.
const keeperArg = "(keeps-the-lock-of)"

func keeperWanted() bool { return len(os.Args) == 3 && os.Args[1] == keeperArg }

// A keep is a lock that is held for another process.
type keep struct {
	order order
	in    <-chan request
	out   *json.Encoder
}

// keeper is the process that holds the lock. It ends when the other does, never by a signal
// that is sent to all processes of a unit or a container.
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
		k.say(answer{Released: true})
	default:
		k.say(answer{Refused: refuse(err)})
	}
	return 0
}

func (k *keep) say(a answer) { k.out.Encode(a) } // if nobody listens, k.in tells

// acquiring returns a ctx that ends if the other process does so before hold is called.
func (k *keep) acquiring() (ctx context.Context, acquired func()) {
	ctx, cancel := context.WithCancel(context.Background())
	stop, stopped := make(chan struct{}), make(chan struct{})
	in := k.in
	go func() {
		defer close(stopped)
		select {
		case <-in: // nothing is said before the lock is held, so it is the end
			cancel()
		case <-stop:
		}
	}()
	return ctx, func() { close(stop); <-stopped }
}

// hold keeps a lock that is held, until it is to be released or is lost. It returns with the
// command ended.
func (k *keep) hold(h held, lost <-chan struct{}, cause func() error) error {
	keepUntil := time.NewTimer(k.order.HoldAtLeast)
	defer keepUntil.Stop()
	k.say(answer{Held: &h})
	group := 0 // of the command, while it runs
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
					killGroup(group, tellForeign)
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
			k.say(answer{Lost: k.order.Key.String() + ": " + lossText(err)})
			if due == nil {
				k.seeToTheEnd(group)
			}
			return err
		}
	}
}

// lossText says of a loss that the session is gone, where the driver's words do not.
func lossText(err error) string {
	text := strings.TrimPrefix(err.Error(), "pgadvisory: ")
	why, ok := strings.CutPrefix(text, strings.TrimPrefix(advisory.ErrLost.Error(), "pgadvisory: ")+": ")
	if !ok || !sessionGone(err) {
		return text
	}
	return "lock lost: the session that held it is gone: " + why
}

// sessionGone reports whether the driver says so: no time-out, after which the server may still
// have it.
func sessionGone(err error) bool {
	if e, ok := errors.AsType[*pq.Error](err); ok {
		return e.Fatal()
	}
	e, ok := errors.AsType[*net.OpError](err)
	return ok && !e.Timeout() || errors.Is(err, driver.ErrBadConn) || errors.Is(err, io.EOF)
}

// seeToTheEnd waits for the other process to end a command whose lock is lost. If it does not,
// because it was stopped or killed, it is done here.
func (k *keep) seeToTheEnd(group int) {
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
					killGroup(group, tellForeign)
				}
				return
			}
		case <-late:
			if group != 0 {
				killGroup(group, tellForeign)
			}
			return
		}
	}
}

// tellForeign does not wait until it is read.
func tellForeign() { go (&program{err: os.Stderr}).report(errForeign) }

func refuse(err error) *refusal {
	code, text := explain(err)
	return &refusal{Code: code, Text: text, Busy: code == exitNo}
}

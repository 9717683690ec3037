//go:build linux || darwin || freebsd

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// A front is the process that the user started. It runs the command.
type front struct {
	*run
	keeper   *exec.Cmd
	in       io.WriteCloser
	requests *json.Encoder
	answers  <-chan answer
	signals  chan os.Signal
}

// ending are the signals that end a process by default.
var ending = []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM}

// underLock runs the command under the lock.
func (r *run) underLock() error {
	f := &front{run: r, signals: make(chan os.Signal, 16)}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // a closed output must not end this process
	f.notify(ending...)
	if err := f.startKeeper(); err != nil {
		return fail(exitSystem, "cannot start a process to hold the lock: %w", err)
	}
	defer f.endKeeper()
	f.logf("waiting for lock %v", r.order.Key)
	h, err := f.acquire()
	if err != nil {
		return err
	}
	f.logf("has lock %v after %v", r.order.Key, h.Waited.Round(time.Millisecond))
	return f.work(h)
}

func (f *front) logf(format string, args ...any) {
	if f.verbose {
		fmt.Fprintf(f.p.err, "pgadvisory: "+format+"\n", args...)
	}
}

// notify delivers signals to f.signals. It leaves out signals that were ignored when this process
// began, as under nohup: the command must ignore them too.
func (f *front) notify(signals ...os.Signal) {
	for _, s := range signals {
		if !signal.Ignored(s) {
			signal.Notify(f.signals, s)
		}
	}
}

// startKeeper starts the process that holds the lock, and sends it the order.
func (f *front) startKeeper() error {
	self := "/proc/self/exe" // works even if the file was replaced since
	if runtime.GOOS != "linux" {
		var err error
		if self, err = os.Executable(); err != nil {
			return err
		}
	}
	f.keeper = &exec.Cmd{
		Path:        self,
		Args:        []string{os.Args[0], keeperArg, strconv.Itoa(os.Getpid())},
		Stderr:      f.p.err,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}, // Ctrl-C and Ctrl-Z do not reach it
	}
	in, err := f.keeper.StdinPipe()
	if err != nil {
		return err
	}
	out, err := f.keeper.StdoutPipe()
	if err != nil {
		return err
	}
	if err := f.keeper.Start(); err != nil {
		return err
	}
	f.in, f.requests, f.answers = in, json.NewEncoder(in), listen[answer](out)
	return f.requests.Encode(f.order)
}

// endKeeper waits until the keeper has ended, for at most 5 seconds.
func (f *front) endKeeper() {
	f.in.Close()
	gone := make(chan struct{})
	go func() {
		for range f.answers {
		}
		f.keeper.Wait()
		close(gone)
	}()
	select {
	case <-gone:
	case <-time.After(5 * time.Second):
	}
}

// acquire waits until the keeper has the lock.
func (f *front) acquire() (*held, error) {
	for {
		select {
		case s := <-f.signals:
			return nil, signalError{s.(syscall.Signal)}
		case a, ok := <-f.answers:
			switch {
			case !ok:
				return nil, fail(exitSystem, "cannot take lock %v: the process that was to hold it has ended", f.order.Key)
			case a.Held != nil:
				return a.Held, nil
			case a.Refused != nil && a.Refused.Busy:
				f.logf("%s", a.Refused.Text)
				return nil, exit(f.conflict)
			case a.Refused != nil:
				return nil, &failure{a.Refused.Code, errors.New(a.Refused.Text)}
			}
		}
	}
}

// releaseLimit limits a release, in addition to the failover time.
const releaseLimit = 30 * time.Second

// release asks the keeper to release the lock, and waits for that. It may take until the lock was
// held for --hold-at-least. A signal of ending skips the rest of that time. A second one makes
// release give up: the connection is closed, and the lock is free when the server detects that.
//
// If the lock is lost only now, release prints that and returns nil: the command ran under the lock.
func (f *front) release() error {
	f.requests.Encode(request{Ended: true})
	within := f.order.Failover + releaseLimit
	limit := time.After(f.order.HoldAtLeast + within)
	now, late := false, false
	for {
		select {
		case s := <-f.signals:
			if !slices.Contains(ending, s) {
				continue
			}
			if now {
				f.keeper.Process.Kill() // which closes its connections
				return signalError{s.(syscall.Signal)}
			}
			now = true
			f.requests.Encode(request{Now: true})
			limit = time.After(within)
		case <-limit:
			if late {
				f.keeper.Process.Kill()
				return fail(exitLost, "the release of lock %v is in doubt: no answer within %v: see pgadvisory who", f.order.Key, within)
			}
			late = true
			limit = time.After(time.Second) // this process may have been stopped, and the answer may be waiting
		case a, ok := <-f.answers:
			switch {
			case !ok:
				f.p.report(fmt.Errorf("lock %v was lost after the command had ended: the process that held it has ended", f.order.Key))
				return nil
			case a.Lost != "":
				f.p.report(fmt.Errorf("after the command had ended: %s", a.Lost))
				return nil
			case a.Released:
				f.logf("has released lock %v", f.order.Key)
				return nil
			case a.Refused != nil:
				return &failure{exitLost, errors.New(a.Refused.Text)}
			}
		}
	}
}

//go:build linux || darwin || freebsd

package main

import (
	"errors"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// forwarded are the signals that are forwarded to the command, in addition to those in ending.
var forwarded = []os.Signal{
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGALRM, syscall.SIGCONT, syscall.SIGTSTP,
}

// work runs the command under a lock that is held.
func (f *front) work(h *held) error {
	f.notify(forwarded...)
	tty := openTerminal(f.p)
	c, err := startChild(f.path, f.argv, f.environment(h), tty)
	if err != nil {
		f.requests.Encode(request{Now: true}) // nothing has run
		f.release()
		return cannotRun(f.argv[0], err)
	}
	f.requests.Encode(request{Child: c.pid})
	if lost := f.await(c); lost != nil {
		f.requests.Encode(request{Ended: true})
		<-lost
		return exit(exitLost)
	}
	if err := f.release(); err != nil {
		return err
	}
	if s := c.end.Signal(); c.end.Signaled() && tty.isLent() && (s == syscall.SIGINT || s == syscall.SIGQUIT) {
		tty.raise(s) // for the other processes that the key press would have reached
	}
	return exit(exitOf(c.end))
}

func exitOf(end syscall.WaitStatus) int {
	if end.Signaled() {
		return exitSignal + int(end.Signal())
	}
	return end.ExitStatus()
}

// environment returns the environment of this process, with the variables for the command.
func (f *front) environment(h *held) []string {
	const key, token = "PGADVISORY_KEY", "PGADVISORY_TOKEN"
	os.Unsetenv(token) // remove the value of an outer run
	os.Setenv(key, f.order.Key.String())
	if h.Token != 0 {
		os.Setenv(token, strconv.FormatUint(h.Token, 10))
	}
	return os.Environ()
}

// await returns when the command, and all processes that it has left in its process group, have
// ended. The lock is held until then. If the lock is lost, await ends the process group. It then
// returns a channel that is closed when the loss has been printed.
func (f *front) await(c *child) (lost <-chan struct{}) {
	var late, look <-chan time.Time
	var foreign sync.Once
	kill := func() {
		if syscall.Kill(-c.pid, syscall.SIGKILL) == syscall.EPERM {
			foreign.Do(func() { go f.p.report(errForeign) })
		}
	}
	killed := false
	pause := time.Millisecond
	end := func(why string) {
		if lost != nil {
			return
		}
		if syscall.Kill(-c.pid, syscall.SIGTERM) == nil {
			why += "; the command was sent SIGTERM"
		}
		syscall.Kill(-c.pid, syscall.SIGCONT) // in case it is stopped
		late = time.After(f.order.Grace)
		printed := make(chan struct{})
		lost = printed
		go func() { // the reader of standard error may be slow
			defer close(printed)
			f.p.report(errors.New(why))
		}()
	}
	answers := f.answers
	for {
		select {
		case status := <-c.changes:
			switch {
			case !status.Stopped():
				c.end = status
				c.tty.take(c.pid)
				look = time.After(0)
			case lost == nil:
				c.stopped(status.StopSignal())
			}
		case <-look:
			if !groupRuns(c.pid) {
				return lost
			}
			if killed { // kill what was started since
				kill()
			}
			if pause == 8*time.Millisecond {
				go f.logf("waiting for what the command has left in its process group, %d", c.pid)
			}
			look = time.After(pause)
			pause = min(2*pause, 100*time.Millisecond)
		case s := <-f.signals:
			c.signal(s.(syscall.Signal))
		case a, ok := <-answers:
			switch {
			case !ok:
				answers = nil
				end("the process that held the lock has ended: the lock is lost")
			case a.Lost != "":
				end(a.Lost)
			}
		case <-late:
			killed = true
			kill()
		}
	}
}

// errForeign is the error of a command that runs as another user.
var errForeign = errors.New("cannot end the command, which runs as another user: waiting for it (run pgadvisory as that user)")

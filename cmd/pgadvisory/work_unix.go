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

// forwarded are the signals that are passed on to the command, besides those in ending.
var forwarded = []os.Signal{
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGALRM, syscall.SIGCONT, syscall.SIGTSTP,
}

// work runs the command under a lock that is held.
func (f *front) work(h *held) error {
	f.notify(forwarded...)
	tty := openTerminal(f.p)
	c, err := startChild(f.path, f.argv, f.environment(h), tty)
	if err != nil {
		f.say.Encode(request{Now: true}) // nothing has run
		f.release()
		return cannotRun(f.argv[0], err)
	}
	f.say.Encode(request{Child: c.pid})
	if lost := f.await(c); lost != nil {
		f.say.Encode(request{Ended: true})
		<-lost
		return exit(exitLost)
	}
	if err := f.release(); err != nil {
		return err
	}
	if s := c.end.Signal(); c.end.Signaled() && tty.isLent() && (s == syscall.SIGINT || s == syscall.SIGQUIT) {
		tty.raise(s) // to whoever else would have had the key that was pressed
	}
	return exit(exitOf(c.end))
}

func exitOf(end syscall.WaitStatus) int {
	if end.Signaled() {
		return exitSignal + int(end.Signal())
	}
	return end.ExitStatus()
}

// environment is ours, with what the command is told.
func (f *front) environment(h *held) []string {
	const key, token = "PGADVISORY_KEY", "PGADVISORY_TOKEN"
	os.Unsetenv(token) // of a run around this one
	os.Setenv(key, f.order.Key.String())
	if h.Token != 0 {
		os.Setenv(token, strconv.FormatUint(h.Token, 10))
	}
	return os.Environ()
}

// await returns when the command, and what it has left in its process group, has ended: the
// lock is held for all of that. If the lock was lost, it has been made to end, and lost is closed when
// that has been told.
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
		syscall.Kill(-c.pid, syscall.SIGCONT) // if it is stopped
		late = time.After(f.order.Grace)
		told := make(chan struct{})
		lost = told
		go func() { // whoever reads it may be slow
			defer close(told)
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
			if killed { // what was started meanwhile
				kill()
			}
			if pause == 8*time.Millisecond {
				go f.tell("waiting for what the command has left in its process group, %d", c.pid)
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

// errForeign tells of a command that runs as another user.
var errForeign = errors.New("the command runs as another user, and can only be waited for: run pgadvisory as that user")

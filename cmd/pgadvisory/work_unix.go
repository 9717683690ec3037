//go:build linux || darwin || freebsd

package main

import (
	"errors"
	"os"
	"strconv"
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
		f.release()
		return cannotRun(f.argv[0], err)
	}
	f.say.Encode(request{Child: c.pid})
	lost := f.await(c)
	tty.take(c.pid)
	if lost {
		killGroup(c.pid)
		f.say.Encode(request{Ended: true})
		return exit(exitLost) // why, has been told
	}
	f.untilGroupEnds(c)
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

// await returns when the command has ended. If the lock was lost, it has been made to.
func (f *front) await(c *child) (lost bool) {
	var kill <-chan time.Time
	end := func(err error) {
		if lost {
			return
		}
		lost = true
		f.p.report(err)
		kill = time.After(f.order.Grace)
		syscall.Kill(-c.pid, syscall.SIGTERM)
		syscall.Kill(-c.pid, syscall.SIGCONT) // if it is stopped
	}
	answers := f.answers
	for {
		select {
		case status := <-c.changes:
			if !status.Stopped() {
				c.end = status
				return lost
			}
			if !lost {
				c.stopped(status.StopSignal())
			}
		case s := <-f.signals:
			c.signal(s.(syscall.Signal))
		case a, ok := <-answers:
			switch {
			case !ok:
				answers = nil
				end(errors.New("the process that held the lock has ended: the lock is lost"))
			case a.Lost != "":
				end(errors.New(a.Lost))
			}
		case <-kill:
			syscall.Kill(-c.pid, syscall.SIGKILL)
		}
	}
}

// untilGroupEnds waits for what the command has left in its process group. The lock is
// held for it too.
func (f *front) untilGroupEnds(c *child) {
	for pause := time.Millisecond; groupRuns(c.pid); pause = min(2*pause, 100*time.Millisecond) {
		if pause == 8*time.Millisecond {
			f.tell("waiting for what the command has left in its process group, %d", c.pid)
		}
		select {
		case s := <-f.signals:
			c.signal(s.(syscall.Signal))
		case <-time.After(pause):
		}
	}
}

//go:build linux || darwin || freebsd

package main

import (
	"errors"
	"os"
	"strconv"
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
	w := groupWait{front: f, child: c, pause: time.Millisecond}
	answers := f.answers
	for {
		select {
		case status := <-c.changes:
			w.changed(status)
		case <-w.due:
			if !groupRuns(c.pid) {
				return w.lost
			}
			w.goOn()
		case s := <-f.signals:
			c.signal(s.(syscall.Signal))
		case a, ok := <-answers:
			switch {
			case !ok:
				answers = nil
				w.end("the process that held the lock has ended: the lock is lost")
			case a.Lost != "":
				w.end(a.Lost)
			}
		case <-w.late:
			w.killed = true
			w.kill()
		}
	}
}

// A groupWait is the wait for the end of the command's process group.
type groupWait struct {
	front *front
	child *child

	due   <-chan time.Time // when the group is looked for; nil while the command runs
	pause time.Duration    // until it is looked for again

	lost    <-chan struct{}  // closed when the loss of the lock has been printed; nil while it is held
	late    <-chan time.Time // when the time to end after the loss is over
	killed  bool
	foreign bool // errForeign has been reported
}

// changed handles a change of the command itself: it has stopped or ended.
func (w *groupWait) changed(status syscall.WaitStatus) {
	c := w.child
	switch {
	case !status.Stopped():
		c.end = status
		c.tty.take(c.pid)
		w.due = time.After(0)
	case w.lost == nil:
		c.stopped(status.StopSignal())
	}
}

// goOn goes on with the wait after the command has ended, while a process of the group is left.
func (w *groupWait) goOn() {
	if w.killed { // kill what was started since
		w.kill()
	}
	if w.pause == 8*time.Millisecond {
		go w.front.logf("waiting for what the command has left in its process group, %d", w.child.pid)
	}
	w.due = time.After(w.pause)
	w.pause = min(2*w.pause, 100*time.Millisecond)
}

// end asks the group to end because the lock is lost, and prints why. It does so once.
func (w *groupWait) end(why string) {
	if w.lost != nil {
		return
	}
	if syscall.Kill(-w.child.pid, syscall.SIGTERM) == nil {
		why += "; the command was sent SIGTERM"
	}
	syscall.Kill(-w.child.pid, syscall.SIGCONT) // in case it is stopped
	w.late = time.After(w.front.order.Grace)
	printed := make(chan struct{})
	w.lost = printed
	go func() { // the reader of standard error may be slow
		defer close(printed)
		w.front.p.report(errors.New(why))
	}()
}

// kill ends the group at once. If that is not permitted, it reports errForeign, once.
func (w *groupWait) kill() {
	if syscall.Kill(-w.child.pid, syscall.SIGKILL) == syscall.EPERM && !w.foreign {
		w.foreign = true
		go w.front.p.report(errForeign)
	}
}

// errForeign is the error of a command that runs as another user.
var errForeign = errors.New("cannot end the command, which runs as another user: waiting for it (run pgadvisory as that user)")

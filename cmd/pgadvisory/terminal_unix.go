//go:build linux || darwin || freebsd

package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"
	"unsafe"
)

// A terminal is the one that controls this process. A nil terminal is none.
//
// The command is in a process group of its own, so that it can be ended as a whole, and the
// terminal serves one process group at a time. It is lent to the command from the start if this
// process has it, and both its input and its output are terminals. Otherwise, in a pipe, somebody
// else in our process group may need it, as less does, and it is lent when the command asks
// for it, by being stopped.
type terminal struct {
	file  *os.File
	group int  // of this process
	both  bool // input and output are terminals
	lent  bool // the command has, or has had, the terminal
}

func openTerminal(p *program) *terminal {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	return &terminal{file: file, group: syscall.Getpgrp(), both: isTerminal(p.in) && isTerminal(p.out)}
}

func isTerminal(f *os.File) bool {
	_, err := foreground(int(f.Fd()))
	return err == nil
}

func (t *terminal) fd() int { return int(t.file.Fd()) }

// ours reports whether the terminal serves our process group.
func (t *terminal) ours() bool {
	group, err := foreground(t.fd())
	return err == nil && group == t.group
}

func (t *terminal) isLent() bool { return t != nil && t.lent }

func (t *terminal) toLend() bool { return t != nil && t.both && t.ours() }

// lend gives the terminal to a process group.
func (t *terminal) lend(group int) {
	t.lent = true
	t.give(group)
}

// take takes the terminal back if that process group has it; 0 stands for any.
func (t *terminal) take(group int) {
	if !t.isLent() {
		return
	}
	if has, err := foreground(t.fd()); err == nil && (has == group || group == 0) {
		t.give(t.group)
	}
}

func (t *terminal) give(group int) {
	// Who does that without having the terminal is stopped by SIGTTOU, unless it is ignored.
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)
	g := int32(group)
	syscall.Syscall(syscall.SYS_IOCTL, uintptr(t.fd()), syscall.TIOCSPGRP, uintptr(unsafe.Pointer(&g)))
}

// stop stops this process as s would by itself and, if it was the command that had the
// terminal, all that would have been stopped with it. It returns when that is over, or at once
// where nobody would continue us, as a shell does.
func (t *terminal) stop(s syscall.Signal) {
	whom := 0
	if !t.lent && s == syscall.SIGTSTP {
		whom = os.Getpid() // the others got it from the terminal, as we did
	}
	stop := func() {
		syscall.Kill(whom, s)
		time.Sleep(stopTime)
	}
	if byDefault(s, stop) {
		return
	}
	// SIGSTOP works always, also where nobody continues us.
	if parent, err := syscall.Getpgid(os.Getppid()); err == nil && parent != t.group {
		s = syscall.SIGSTOP
		stop()
	}
}

// stopTime is enough for a signal to reach this process. It does not pass while that is stopped.
const stopTime = 50 * time.Millisecond

// raise sends s to all of our process group. This process ends by it, unless it began with
// s ignored.
func (t *terminal) raise(s syscall.Signal) {
	byDefault(s, func() {
		syscall.Kill(0, s)
		time.Sleep(stopTime)
	})
}

func foreground(fd int) (group int, err error) {
	var g int32
	if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.TIOCGPGRP, uintptr(unsafe.Pointer(&g))); e != 0 {
		return 0, e
	}
	return int(g), nil
}

//go:build linux || darwin || freebsd

package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"
	"unsafe"
)

// A terminal is the controlling terminal of this process. It is nil if there is none.
//
// The command is in a process group of its own, so that it can be ended as a whole. A terminal
// serves one process group at a time. If this process has the terminal, and both its input and its
// output are terminals, it lends the terminal to the command from the start. Otherwise, in a pipe,
// another process of its group may need the terminal, as less does. Then it lends the terminal when
// the kernel stops the command for using it.
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

// ours reports whether the terminal serves the process group of this process.
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

// take takes the terminal back if the given process group has it; 0 stands for any group.
func (t *terminal) take(group int) {
	if !t.isLent() {
		return
	}
	if has, err := foreground(t.fd()); err == nil && (has == group || group == 0) {
		t.give(t.group)
	}
}

func (t *terminal) give(group int) {
	// SIGTTOU stops a process that does this without having the terminal, unless it ignores SIGTTOU.
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)
	g := int32(group)
	syscall.Syscall(syscall.SYS_IOCTL, uintptr(t.fd()), syscall.TIOCSPGRP, uintptr(unsafe.Pointer(&g)))
}

// stop stops this process as the signal s would by default. If the command had the terminal, stop
// also stops all other processes of the group, which the terminal would have stopped. It returns
// when the process continues, or at once if there is no shell that would continue it.
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
	// SIGSTOP always works, even if there is no shell that continues this process.
	if parent, err := syscall.Getpgid(os.Getppid()); err == nil && parent != t.group {
		s = syscall.SIGSTOP
		stop()
	}
}

// stopTime is enough for a signal to reach this process. It does not elapse while the process is
// stopped.
const stopTime = 50 * time.Millisecond

// raise sends s to the whole process group of this process. This process ends by it, unless s was
// ignored when the process began.
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

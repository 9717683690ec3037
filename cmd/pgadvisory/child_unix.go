//go:build linux || darwin || freebsd

package main

import (
	"os"
	"runtime"
	"syscall"
)

// A child is the command. It leads a process group of its own.
type child struct {
	pid     int
	changes <-chan syscall.WaitStatus // when it is stopped, and when it has ended
	end     syscall.WaitStatus
	tty     *terminal
}

// startChild starts the command.
func startChild(path string, argv, env []string, tty *terminal) (*child, error) {
	attr := &os.ProcAttr{Env: env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: &syscall.SysProcAttr{Setpgid: true}}
	dieWithParent(attr.Sys)
	if tty.toLend() {
		attr.Sys.Foreground, attr.Sys.Ctty = true, tty.fd()
		tty.lent = true
	}
	changes := make(chan syscall.WaitStatus, 1)
	started := make(chan error, 1)
	var pid int
	go func() {
		// On Linux the kernel kills the command when the thread that started it ends.
		runtime.LockOSThread()
		process, err := os.StartProcess(path, argv, attr)
		if err != nil {
			started <- err
			return
		}
		pid = process.Pid
		started <- nil
		for {
			var status syscall.WaitStatus
			_, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil)
			if err == syscall.EINTR {
				continue
			}
			changes <- status
			if err != nil || !status.Stopped() {
				select {} // the thread stays
			}
		}
	}()
	if err := <-started; err != nil {
		tty.take(0)
		return nil, err
	}
	return &child{pid: pid, changes: changes, tty: tty}, nil
}

// signal forwards a signal that this process received. Signals that a terminal sends, and SIGTERM,
// go to the whole process group.
func (c *child) signal(s syscall.Signal) {
	switch s {
	case syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM:
		syscall.Kill(c.pid, s)
	case syscall.SIGCONT:
		c.resume()
	default:
		syscall.Kill(-c.pid, s)
	}
}

// stopped stops this process after the command was stopped, so that a shell that started this process
// gets its prompt.
func (c *child) stopped(s syscall.Signal) {
	if c.tty == nil || s == syscall.SIGSTOP {
		return // no shell waits for it: whoever stopped it continues it
	}
	if (s == syscall.SIGTTIN || s == syscall.SIGTTOU) && c.tty.ours() {
		c.tty.lend(c.pid) // it needs the terminal, and this process has it
		syscall.Kill(-c.pid, syscall.SIGCONT)
		return
	}
	c.tty.take(c.pid)
	c.tty.stop(s)
	c.resume()
}

// resume continues the command, in the foreground if this process is there.
func (c *child) resume() {
	if c.tty.isLent() && c.tty.ours() {
		c.tty.lend(c.pid)
	}
	syscall.Kill(-c.pid, syscall.SIGCONT)
}

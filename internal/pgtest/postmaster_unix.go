//go:build unix

package pgtest

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// A postmaster is the first process of a running server, and the parent of all others.
type postmaster struct {
	cmd *exec.Cmd
	// leash is the end of a pipe whose other end every process of the server has inherited: at its
	// end of file none of them is left.
	leash *os.File
}

func startPostmaster(cmd *exec.Cmd) (*postmaster, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	cmd.ExtraFiles = []*os.File{w}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return &postmaster{cmd: cmd, leash: r}, nil
}

func (p *postmaster) pid() int { return p.cmd.Process.Pid }

func (p *postmaster) signal(sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }

// gone waits for at most d for the end of all processes of the server, and reports whether they
// have ended.
func (p *postmaster) gone(d time.Duration) bool {
	p.leash.SetReadDeadline(time.Now().Add(d))
	_, err := p.leash.Read(make([]byte, 1))
	return err == io.EOF
}

// reap releases what the system keeps of a server that has ended.
func (p *postmaster) reap() {
	p.cmd.Wait() // the error is its exit status
	p.leash.Close()
}

// pause stops all processes: the parent first, so that no new ones appear.
func (p *postmaster) pause() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	stopped := make(map[int]bool)
	for {
		children, err := childrenOf(p.pid())
		if err != nil {
			return err
		}
		before := len(stopped)
		for _, pid := range children {
			if !stopped[pid] {
				stopped[pid] = true
				syscall.Kill(pid, syscall.SIGSTOP) // it may have ended since
			}
		}
		if len(stopped) == before {
			return nil
		}
	}
}

func (p *postmaster) resume() error {
	children, err := childrenOf(p.pid())
	if err != nil {
		return err
	}
	for _, pid := range children {
		syscall.Kill(pid, syscall.SIGCONT)
	}
	return p.signal(syscall.SIGCONT)
}

// kill kills all processes. It stops them first, so none of them can react.
func (p *postmaster) kill() error {
	if err := p.pause(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	children, err := childrenOf(p.pid())
	if err != nil {
		return err
	}
	for _, pid := range append(children, p.pid()) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	if !p.gone(lifecycleTimeout) {
		return errors.New("pgtest: processes of the server are left after SIGKILL")
	}
	return nil
}

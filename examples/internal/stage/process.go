package stage

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"strings"
)

// A Process is another process of this program. The director exchanges lines with it.
type Process struct {
	Name  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
}

// Cast starts a process for each name. They end with ctx.
func (s *Stage) Cast(ctx context.Context, names ...string) ([]*Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var all []*Process
	for _, name := range names {
		cmd := exec.CommandContext(ctx, program, os.Args[1:]...)
		cmd.Env = append(os.Environ(), roleVariable+"="+name, urlVariable+"="+s.URL)
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		p := &Process{Name: name, cmd: cmd, in: in, lines: make(chan string, 100)}
		go p.read(out)
		all = append(all, p)
	}
	for _, p := range all {
		if err := p.Expect(ctx, ready); err != nil {
			return nil, err
		}
	}
	return all, nil
}

const ready = "ready"

func (p *Process) read(out io.Reader) {
	defer close(p.lines)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		p.lines <- lines.Text()
	}
}

// Tell sends a line to all of the processes, in random order.
func Tell(line string, processes ...*Process) error {
	for _, i := range rand.Perm(len(processes)) {
		if _, err := fmt.Fprintln(processes[i].in, line); err != nil {
			return fmt.Errorf("%s: %w", processes[i].Name, err)
		}
	}
	return nil
}

// Hear returns the next line of the process. It fails if the process has ended or reports an error.
func (p *Process) Hear(ctx context.Context) (string, error) {
	select {
	case line, ok := <-p.lines:
		if !ok {
			return "", fmt.Errorf("%s has ended too early", p.Name)
		}
		if what, failed := strings.CutPrefix(line, "error: "); failed {
			return "", fmt.Errorf("%s: %s", p.Name, what)
		}
		return line, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// Expect is [Process.Hear] for an expected line. It fails if the line is another one.
func (p *Process) Expect(ctx context.Context, want string) error {
	line, err := p.Hear(ctx)
	if err == nil && line != want {
		err = fmt.Errorf("%s said %q, not %q", p.Name, line, want)
	}
	return err
}

// Kill kills the process as kill -9 does, and returns when it has ended.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return err
	}
	var exit *exec.ExitError
	if err := p.wait(); !errors.As(err, &exit) {
		return fmt.Errorf("%s survived: %v", p.Name, err)
	}
	return nil
}

// wait waits for the end of the process and of its output.
func (p *Process) wait() error {
	for range p.lines {
	}
	return p.cmd.Wait()
}

// End ends the processes by closing their input, and returns an error if one of them fails.
func End(processes ...*Process) error {
	var errs []error
	for _, p := range processes {
		p.in.Close()
		if err := p.wait(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.Name, err))
		}
	}
	return errors.Join(errs...)
}

// A Role is the part of a process that Cast has started.
type Role struct {
	Name  string
	URL   string // of the database, with an application_name
	lines *bufio.Scanner
}

func newRole(name, database string) *Role {
	if u, err := url.Parse(database); err == nil {
		q := u.Query()
		q.Set("application_name", name)
		u.RawQuery = q.Encode()
		database = u.String()
	}
	return &Role{Name: name, URL: database, lines: bufio.NewScanner(os.Stdin)}
}

// Ready tells the director that the process can begin.
func (r *Role) Ready() { r.Say(ready) }

// Say sends a line to the director.
func (r *Role) Say(line string) { fmt.Println(line) }

// fail sends an error to the director.
func (r *Role) fail(err error) {
	r.Say("error: " + strings.ReplaceAll(err.Error(), "\n", " "))
}

// Hear returns the next line of the director. ok is false after the last one.
func (r *Role) Hear() (line string, ok bool) {
	if !r.lines.Scan() {
		return "", false
	}
	return r.lines.Text(), true
}

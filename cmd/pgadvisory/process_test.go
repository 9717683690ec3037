//go:build linux || darwin || freebsd

package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/inspect"
)

// A process is a pgadvisory that runs.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	lines  chan string
	stderr *strings.Builder
}

// pgadvisory starts one.
func pgadvisory(t *testing.T, url string, args ...string) *process {
	t.Helper()
	return started(t, url, nil, args...)
}

// started has another standard error if stderr is not nil.
func started(t *testing.T, url string, stderr *os.File, args ...string) *process {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.Command(path, args...), lines: make(chan string, 100), stderr: &strings.Builder{}}
	p.cmd.Env = append(os.Environ(), "DATABASE_URL="+url)
	p.cmd.Stderr = p.stderr
	if stderr != nil {
		p.cmd.Stderr = stderr
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.lines <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			p.cmd.Process.Kill()
			p.ends()
		}
	})
	return p
}

// line returns the next line of its output, of which the last is "" at the end.
func (p *process) line() string {
	p.t.Helper()
	select {
	case line := <-p.lines:
		return line
	case <-time.After(patience):
		p.t.Fatalf("%v: no line within %v; %s", p.cmd, patience, p.stderr)
		return ""
	}
}

// pid returns the next line as the pid that it is.
func (p *process) pid() int {
	p.t.Helper()
	line := p.line()
	pid, err := strconv.Atoi(line)
	if err != nil || pid <= 1 {
		p.t.Fatalf("%v: %q is no pid; %s", p.cmd, line, p.stderr)
	}
	return pid
}

// ends waits for its end and returns the exit code, -1 after a signal.
func (p *process) ends() int {
	p.t.Helper()
	code, err := p.wait()
	if err != nil {
		p.t.Fatal(err)
	}
	return code
}

// wait is ends for any goroutine.
func (p *process) wait() (code int, err error) {
	ended := make(chan struct{})
	go func() {
		for range p.lines {
		}
		p.cmd.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-time.After(patience):
		return 0, fmt.Errorf("%v does not end; %s", p.cmd, p.stderr)
	}
}

// keeper returns the pid of the process that holds its lock.
func (p *process) keeper() int {
	p.t.Helper()
	out, err := exec.Command("pgrep", "-f", "-x", fmt.Sprintf(`.*\(keeps-the-lock-of\) %d`, p.cmd.Process.Pid)).Output()
	if err != nil {
		p.t.Fatalf("pgrep: %v", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		p.t.Fatal(err)
	}
	return pid
}

// runs reports whether there is such a process, and it has not ended.
func runs(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	after := string(stat[strings.LastIndexByte(string(stat), ')')+1:])
	return !strings.HasPrefix(after, " Z")
}

// reaped reports whether there is no such process, not even one that has ended.
func reaped(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// eventually fails the test if is does not become true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// open opens a pool for the test itself.
func open(t *testing.T, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("postgres", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func holders(t *testing.T, db *sql.DB, key advisory.Key) []advisory.Holder {
	t.Helper()
	hs, err := inspect.Holders(context.Background(), db, key)
	if err != nil {
		t.Fatal(err)
	}
	return hs
}

// free waits until nobody holds key.
func free(t *testing.T, db *sql.DB, key advisory.Key) {
	t.Helper()
	eventually(t, fmt.Sprintf("%v is free", key), func() bool { return len(holders(t, db, key)) == 0 })
}

// number returns what the environment says, for runs at length, else n.
func number(t *testing.T, variable string, n int) int {
	t.Helper()
	if text := os.Getenv(variable); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s: %v", variable, err)
		}
	}
	return n
}

package advisory_test

import (
	"bufio"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A peer is a process of its own: this test binary, which does a job in place of the
// tests. What it prints the test reads line by line; it ends with the test's process.
type peer struct {
	t     testing.TB
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string // closed at the end of its output
}

// An order is what a worker is to do.
type order struct {
	Job, Driver, URL string
	Args             []string
	Netns            string // the network namespace to run in, if any
}

const orderVar = "PGADVISORY_TEST_ORDER"

// jobs are what workers can do. A job prints with fmt, and its error ends the worker.
var jobs = map[string]func(o order) error{}

// work does a job and exits if this process is a worker.
func work() {
	text := os.Getenv(orderVar)
	if text == "" {
		return
	}
	var o order
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = jobs[o.Job](o)
	}
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// open opens the pool that the worker is to use.
func (o order) open() (*sql.DB, error) { return sql.Open(o.Driver, o.URL) }

// orphaned is closed when the test's process has ended, or has closed the worker's input.
func orphaned() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		io.Copy(io.Discard, os.Stdin)
	}()
	return done
}

// start starts a worker, which is killed at the end of the test.
func (o order) start(t testing.TB) *peer {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := []string{exe}
	if o.Netns != "" {
		command = []string{"ip", "netns", "exec", o.Netns, exe}
	}
	w := &peer{t: t, cmd: exec.Command(command[0], command[1:]...), lines: make(chan string, 100)}
	// A data race ends it, and so the test: nobody looks at how it exits.
	w.cmd.Env = append(os.Environ(), orderVar+"="+string(text), "GORACE=halt_on_error=1")
	w.cmd.Stderr = os.Stderr
	out, err := w.cmd.StdoutPipe()
	if err == nil {
		w.in, err = w.cmd.StdinPipe()
	}
	if err == nil {
		err = w.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.kill)
	go func() {
		defer close(w.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			w.lines <- s.Text()
		}
	}()
	return w
}

// kill ends it with SIGKILL.
func (w *peer) kill() {
	w.cmd.Process.Kill()
	w.cmd.Wait()
}

// says waits until the worker prints a line that begins with prefix, and returns the rest.
func (w *peer) says(prefix string, within time.Duration) string {
	w.t.Helper()
	late := time.After(within)
	for {
		select {
		case line, ok := <-w.lines:
			if rest, is := strings.CutPrefix(line, prefix); is {
				return rest
			} else if !ok {
				w.t.Fatalf("the worker ended before it said %q", prefix)
			} else if strings.HasPrefix(line, "failed: ") {
				w.t.Fatalf("the worker %s", line)
			}
		case <-late:
			w.cmd.Process.Signal(syscall.SIGQUIT) // its stacks go to stderr
			w.cmd.Wait()
			w.t.Fatalf("the worker has not said %q within %v", prefix, within)
		}
	}
}

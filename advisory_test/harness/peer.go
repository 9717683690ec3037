package harness

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

// A Peer is a process of its own: this test binary, which does a job in place of the
// tests. What it prints the test reads line by line; it ends with the test's process.
type Peer struct {
	T     testing.TB
	Cmd   *exec.Cmd
	In    io.WriteCloser
	Lines chan string // closed at the end of its output
}

// An Order is what a worker is to do.
type Order struct {
	Job, Driver, URL string
	Args             []string
	Netns            string // the network namespace to run in, if any
}

const orderVar = "PGADVISORY_TEST_ORDER"

// Jobs are what workers can do. A job prints with fmt, and its error ends the worker.
var Jobs = map[string]func(o Order) error{}

// Work does a job and exits if this process is a worker.
func Work() {
	text := os.Getenv(orderVar)
	if text == "" {
		return
	}
	var o Order
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = Jobs[o.Job](o)
	}
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Open opens the pool that the worker is to use.
func (o Order) Open() (*sql.DB, error) { return sql.Open(o.Driver, o.URL) }

// Orphaned is closed when the test's process has ended, or has closed the worker's input.
func Orphaned() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		io.Copy(io.Discard, os.Stdin)
	}()
	return done
}

// Start starts a worker, which is killed at the end of the test.
func (o Order) Start(t testing.TB) *Peer {
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
	w := &Peer{T: t, Cmd: exec.Command(command[0], command[1:]...), Lines: make(chan string, 100)}
	// A data race ends it, and so the test: nobody looks at how it exits.
	w.Cmd.Env = append(os.Environ(), orderVar+"="+string(text), "GORACE=halt_on_error=1")
	w.Cmd.Stderr = os.Stderr
	out, err := w.Cmd.StdoutPipe()
	if err == nil {
		w.In, err = w.Cmd.StdinPipe()
	}
	if err == nil {
		err = w.Cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Kill)
	go func() {
		defer close(w.Lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			w.Lines <- s.Text()
		}
	}()
	return w
}

// Kill ends it with SIGKILL.
func (w *Peer) Kill() {
	w.Cmd.Process.Kill()
	w.Cmd.Wait()
}

// Says waits until the worker prints a line that begins with prefix, and returns the rest.
func (w *Peer) Says(prefix string, within time.Duration) string {
	w.T.Helper()
	late := time.After(within)
	for {
		select {
		case line, ok := <-w.Lines:
			if rest, is := strings.CutPrefix(line, prefix); is {
				return rest
			} else if !ok {
				w.T.Fatalf("the worker ended before it said %q", prefix)
			} else if strings.HasPrefix(line, "failed: ") {
				w.T.Fatalf("the worker %s", line)
			}
		case <-late:
			w.Cmd.Process.Signal(syscall.SIGQUIT) // its stacks go to stderr
			w.Cmd.Wait()
			w.T.Fatalf("the worker has not said %q within %v", prefix, within)
		}
	}
}

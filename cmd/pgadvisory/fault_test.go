//go:build linux || darwin || freebsd

package main

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// family is a command that has started another; it tells its pid, and the other's.
var family = []string{"sh", "-c", "echo $$; sleep 1000 & echo $!; wait"}

// stubborn is the same, and takes no notice of SIGTERM.
var stubborn = []string{"sh", "-c", "trap '' TERM; echo $$; sleep 1000 & echo $!; wait"}

// slow takes a while to end at SIGTERM, and tells that it did.
const slow = `trap 'sleep 0.3; echo tidied up; exit' TERM; echo $$; while :; do sleep 0.05; done`

// terminate ends the session that holds key.
func terminate(t *testing.T, db *sql.DB, key advisory.Key) {
	t.Helper()
	hs := holders(t, db, key)
	if len(hs) != 1 {
		t.Fatalf("holders: %v", hs)
	}
	if _, err := db.Exec("SELECT pg_terminate_backend($1)", hs[0].PID); err != nil {
		t.Fatal(err)
	}
}

func under(flags []string, key int64, command []string) []string {
	args := append([]string{"run"}, flags...)
	return append(append(args, fmt.Sprint(key), "--"), command...)
}

// Whoever has the lock next finds nothing left of a command whose pgadvisory was killed.
// PGADVISORY_COMMAND_KILLS says how often.
func TestKilledWithSIGKILL(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	url := pgtest.URL(t)
	db := open(t, url)
	for i := range number(t, "PGADVISORY_COMMAND_KILLS", 6) {
		flags, command := []string(nil), family
		if i%2 == 1 {
			command = stubborn
		}
		if i%3 == 2 {
			flags = []string{"--scope", "transaction"}
		}
		key := int64(100 + i)
		p := pgadvisory(t, url, under(flags, key, command)...)
		child, grandchild := p.pid(), p.pid()
		next := pgadvisory(t, url, "run", fmt.Sprint(key), "--", "sh", "-c",
			fmt.Sprintf("for p in %d %d; do ps -o stat= -p $p | grep -qv Z && echo $p is left; done; echo done", child, grandchild))
		time.Sleep(200 * time.Millisecond) // it waits, which makes the handover quick
		p.cmd.Process.Kill()
		if line := next.line(); line != "done" {
			t.Errorf("round %d: the next holder saw that %s", i, line)
		}
		if code := next.ends(); code != 0 {
			t.Errorf("round %d: exit code %d: %s", i, code, next.stderr)
		}
		eventually(t, "the family is gone", func() bool { return !runs(child) && !runs(grandchild) })
		free(t, db, advisory.Int64(key))
	}
}

// The keeper's end is the lock's, and so the command's.
func TestKilledKeeper(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	for _, test := range []struct {
		name    string
		command []string
	}{{"family", family}, {"stubborn", stubborn}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := pgadvisory(t, url, under([]string{"--grace", "0.3"}, 1, test.command)...)
			child, grandchild := p.pid(), p.pid()
			syscall.Kill(p.keeper(), syscall.SIGKILL)
			if code := p.ends(); code != exitLost {
				t.Errorf("exit code %d: %s", code, p.stderr)
			}
			if runs(child) || runs(grandchild) {
				t.Error("something of the command is left")
			}
			if text := p.stderr.String(); !strings.Contains(text, "the lock is lost") || strings.Count(text, "\n") != 1 {
				t.Errorf("it said %q", text)
			}
		})
	}
	free(t, open(t, url), advisory.Int64(1))
}

// If both are killed, the command itself is, too.
func TestBothKilled(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has a signal for the death of the parent")
	}
	t.Parallel()
	url := pgtest.URL(t)
	p := pgadvisory(t, url, under(nil, 1, []string{"sh", "-c", "echo $$; exec sleep 1000"})...)
	child := p.pid()
	keeper := p.keeper()
	syscall.Kill(keeper, syscall.SIGSTOP) // so that it has no time to do anything
	p.cmd.Process.Kill()
	eventually(t, "the command is gone", func() bool { return !runs(child) })
	syscall.Kill(keeper, syscall.SIGKILL)
	free(t, open(t, url), advisory.Int64(1))
}

func TestKilledCommand(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	p := pgadvisory(t, url, under(nil, 1, []string{"sh", "-c", "echo $$; exec sleep 1000"})...)
	syscall.Kill(p.pid(), syscall.SIGKILL)
	if code := p.ends(); code != 137 {
		t.Errorf("exit code %d: %s", code, p.stderr)
	}
	free(t, open(t, url), advisory.Int64(1))
}

// The lock is held for what the command has left behind in its process group.
func TestLockOutlivesTheCommandsProcessGroup(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	db := open(t, url)
	p := pgadvisory(t, url, under([]string{"-v"}, 1, []string{"sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!"})...)
	left := p.pid()
	time.Sleep(300 * time.Millisecond)
	if hs := holders(t, db, advisory.Int64(1)); len(hs) != 1 {
		t.Errorf("holders: %v", hs)
	}
	syscall.Kill(left, syscall.SIGKILL)
	if code := p.ends(); code != 0 {
		t.Errorf("exit code %d: %s", code, p.stderr)
	}
	free(t, db, advisory.Int64(1))
}

// A lock that is lost ends the command: by SIGTERM, or by SIGKILL after the grace.
func TestTerminatedBackend(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	db := open(t, url)
	for i, test := range []struct {
		name    string
		flags   []string
		command []string
	}{
		{"session", []string{"--grace", "60"}, family},
		{"transaction", []string{"--grace", "60", "--scope", "transaction"}, family},
		{"stubborn", []string{"--grace", "0.3"}, stubborn},
		{"says that all is well", []string{"--grace", "60"}, []string{"sh", "-c", "trap 'exit 0' TERM; echo $$; sleep 1000 & echo $!; wait"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			key := int64(1 + i)
			p := pgadvisory(t, url, under(test.flags, key, test.command)...)
			child, grandchild := p.pid(), p.pid()
			terminate(t, db, advisory.Int64(key))
			if code := p.ends(); code != exitLost {
				t.Errorf("exit code %d: %s", code, p.stderr)
			}
			if runs(child) || runs(grandchild) {
				t.Error("something of the command is left")
			}
			if text := p.stderr.String(); !strings.Contains(text, "lost") || strings.Count(text, "\n") != 1 {
				t.Errorf("it said %q", text)
			}
			if hs := holders(t, db, advisory.Int64(key)); len(hs) > 0 {
				t.Errorf("holders: %v", hs)
			}
		})
	}
}

// The rest of the process group is ended as the command itself is: by SIGTERM, and with the same
// grace, whether the command has ended before the loss or ends of it.
func TestLostByTheRestOfTheProcessGroup(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	db := open(t, url)
	for i, test := range []struct {
		name   string
		leader string
		ended  bool // before the loss
		keeper bool // is killed, else the session is terminated
	}{
		{"ended, keeper killed", `echo $$; sh -c "$1" &`, true, true},
		{"ended, session terminated", `echo $$; sh -c "$1" &`, true, false},
		{"ends first, keeper killed", `echo $$; sh -c "$1" & wait`, false, true},
		{"ends first, session terminated", `echo $$; sh -c "$1" & wait`, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			key := int64(1 + i)
			p := pgadvisory(t, url, under([]string{"--grace", "60"}, key, []string{"sh", "-c", test.leader, "sh", slow})...)
			leader, rest := p.pid(), p.pid()
			if test.ended {
				eventually(t, "pgadvisory has waited for the command", func() bool { return reaped(leader) })
				time.Sleep(100 * time.Millisecond) // and knows it
			}
			if test.keeper {
				syscall.Kill(p.keeper(), syscall.SIGKILL)
			} else {
				terminate(t, db, advisory.Int64(key))
			}
			if line := p.line(); line != "tidied up" {
				t.Errorf("the rest of the group says %q", line)
			}
			if code := p.ends(); code != exitLost {
				t.Errorf("exit code %d: %s", code, p.stderr)
			}
			if runs(rest) {
				t.Error("something of the command is left")
			}
		})
	}
}

// A loss ends the command though nobody reads that it is lost, or can.
func TestLostWithNobodyToTell(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := w.Write(make([]byte, 1<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the pipe is not full: %v", err)
	}
	p := started(t, url, w, under([]string{"--grace", "0.3"}, 1, stubborn)...)
	w.Close()
	child, grandchild := p.pid(), p.pid()
	syscall.Kill(p.keeper(), syscall.SIGKILL)
	eventually(t, "the command has ended", func() bool { return !runs(child) && !runs(grandchild) })
	r.Close()
	if code := p.ends(); code != exitLost {
		t.Errorf("exit code %d, %v", code, p.cmd.ProcessState)
	}
}

// A lock that is lost after the command has ended, within --hold-at-least, is reported, and the
// command's exit code is its own.
func TestLostAfterTheCommand(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	url := pgtest.URL(t)
	db := open(t, url)
	for i, keeper := range []bool{true, false} {
		key := int64(1 + i)
		p := pgadvisory(t, url, under([]string{"--grace", "60", "--hold-at-least", "60"}, key, []string{"sh", "-c", "echo $$; exit 3"})...)
		child := p.pid()
		eventually(t, "pgadvisory has waited for the command", func() bool { return reaped(child) })
		time.Sleep(300 * time.Millisecond) // and knows it
		if keeper {
			syscall.Kill(p.keeper(), syscall.SIGKILL)
		} else {
			terminate(t, db, advisory.Int64(key))
		}
		if code := p.ends(); code != 3 {
			t.Errorf("exit code %d: %s", code, p.stderr)
		}
		if text := p.stderr.String(); !strings.Contains(text, "after the command had ended") || strings.Count(text, "\n") != 1 {
			t.Errorf("it said %q", text)
		}
	}
}

// Only signals that end others cut --hold-at-least short.
func TestSignalsWhileTheLockIsHeldOn(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	db := open(t, url)
	p := pgadvisory(t, url, under([]string{"--hold-at-least", "60"}, 1, []string{"sh", "-c", "echo $$"})...)
	child := p.pid()
	eventually(t, "pgadvisory has waited for the command", func() bool { return reaped(child) })
	time.Sleep(300 * time.Millisecond)
	for _, s := range []syscall.Signal{syscall.SIGWINCH, syscall.SIGCONT, syscall.SIGTSTP, syscall.SIGUSR1, syscall.SIGALRM} {
		p.cmd.Process.Signal(s)
		time.Sleep(50 * time.Millisecond)
	}
	time.Sleep(200 * time.Millisecond)
	if hs := holders(t, db, advisory.Int64(1)); len(hs) != 1 {
		t.Errorf("holders: %v", hs)
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	if code := p.ends(); code != 0 {
		t.Errorf("exit code %d: %s", code, p.stderr)
	}
	free(t, db, advisory.Int64(1))
}

// Where nothing has run, nothing is held on.
func TestNoHoldingOnWithoutACommand(t *testing.T) {
	t.Parallel()
	t.Run("it cannot be run", func(t *testing.T) {
		t.Parallel()
		url := pgtest.URL(t)
		bad := filepath.Join(t.TempDir(), "bad")
		if err := os.WriteFile(bad, []byte("no program\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		p := pgadvisory(t, url, under([]string{"--hold-at-least", "60"}, 1, []string{bad})...)
		if code := p.ends(); code != exitCannotRun {
			t.Errorf("exit code %d: %s", code, p.stderr)
		}
		free(t, open(t, url), advisory.Int64(1))
	})
	t.Run("the other process ends before", func(t *testing.T) {
		in := make(chan request)
		close(in)
		k := &keep{order: order{HoldAtLeast: time.Hour}, in: in, out: json.NewEncoder(io.Discard)}
		done := make(chan error, 1)
		go func() { done <- k.hold(held{}, nil, nil) }()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Error("it is held on")
		}
	})
}

// A server that does not answer keeps the end of a transaction from coming for a while, and
// nobody who is in a hurry.
func TestReleaseIsBounded(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := pgtest.NewServer(t)
	p := pgadvisory(t, server.URL(), under([]string{"--scope", "transaction"}, 1, []string{"sh", "-c", "echo $$; exec sleep 1000"})...)
	child := p.pid()

	pingLimit = 500 * time.Millisecond // here; p is another process
	in, out := make(chan request), make(chan answer, 10)
	k := &keep{order: order{Key: advisory.Int64(2), Transaction: true}, in: in, out: answers(out)}
	var err error
	if k.order.Settings, err = parseSettings(server.URL()); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- k.transaction() }()
	select {
	case a := <-out:
		if a.Held == nil {
			t.Fatalf("%+v", a)
		}
	case err := <-done:
		t.Fatal(err)
	}

	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	defer server.Resume()
	in <- request{Child: 1 << 30}
	in <- request{Ended: true}
	syscall.Kill(child, syscall.SIGKILL)
	for range 2 {
		time.Sleep(300 * time.Millisecond)
		p.cmd.Process.Signal(syscall.SIGINT)
	}
	if code := p.ends(); code != exitSignal+int(syscall.SIGINT) {
		t.Errorf("exit code %d: %s", code, p.stderr)
	}
	select {
	case err := <-done:
		if err == nil {
			t.Error("it is released, as it says")
		}
	case <-time.After(patience):
		t.Error("the transaction does not end")
	}
}

// answers is where a keeper says its words to c.
func answers(c chan<- answer) *json.Encoder {
	r, w := io.Pipe()
	go func() {
		for a := range listen[answer](r) {
			c <- a
		}
	}()
	return json.NewEncoder(w)
}

// A server that stops, or does not answer any more, is a loss too.
func TestStoppedServer(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := pgtest.NewServer(t)
	url := server.URL()
	for _, test := range []struct {
		name       string
		stop, mend func() error
	}{
		{"immediate", func() error { return server.Stop("immediate") }, server.Start},
		{"paused", server.Pause, server.Resume},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := pgadvisory(t, url, under([]string{"--failover", "4"}, 1, family)...)
			child, grandchild := p.pid(), p.pid()
			if err := test.stop(); err != nil {
				t.Fatal(err)
			}
			code := p.ends()
			if runs(child) || runs(grandchild) {
				t.Error("something of the command is left")
			}
			if err := test.mend(); err != nil {
				t.Fatal(err)
			}
			if code != exitLost {
				t.Errorf("exit code %d: %s", code, p.stderr)
			}
			free(t, open(t, url), advisory.Int64(1))
		})
	}
}

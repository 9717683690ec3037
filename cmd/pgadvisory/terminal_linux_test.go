package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// A screen is a terminal with a program that it controls.
type screen struct {
	t      *testing.T
	master *os.File
	cmd    *exec.Cmd

	mu   sync.Mutex
	text string // what was shown
	seen int    // up to where it was expected
}

func onTerminal(t *testing.T, url string, name string, args ...string) *screen {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	ioctl := func(request uintptr, value *int32) {
		if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, master.Fd(), request, uintptr(unsafe.Pointer(value))); e != 0 {
			t.Fatal(e)
		}
	}
	var unlock, number int32
	ioctl(syscall.TIOCSPTLCK, &unlock)
	ioctl(syscall.TIOCGPTN, &number)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	s := &screen{t: t, master: master, cmd: exec.Command(name, args...)}
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = slave, slave, slave
	s.cmd.Env = append(os.Environ(), "DATABASE_URL="+url, "PS1=$ ", "ENV=", "TERM=dumb")
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		buffer := make([]byte, 1000)
		for {
			n, err := master.Read(buffer)
			s.mu.Lock()
			s.text += string(buffer[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the screen: %q", s.text)
		}
		s.cmd.Process.Kill()
		if s.cmd.ProcessState == nil {
			s.cmd.Wait()
		}
		master.Close()
	})
	return s
}

func (s *screen) types(text string) {
	s.t.Helper()
	if _, err := s.master.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// shows waits until the screen shows text, after what was waited for before.
func (s *screen) shows(text string) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("the screen shows %q", text), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		at := strings.Index(s.text[s.seen:], text)
		if at >= 0 {
			s.seen += at + len(text)
		}
		return at >= 0
	})
}

func (s *screen) ends() int {
	s.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- s.cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil && s.cmd.ProcessState == nil {
			s.t.Fatal(err)
		}
		return s.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		s.t.Fatal("it does not end")
		return 0
	}
}

const (
	ctrlC = "\x03"
	ctrlD = "\x04"
	ctrlZ = "\x1a"
)

// Ctrl-C reaches the command once, whether it was given the terminal or not.
func TestCtrlCOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s := onTerminal(t, url, "pgadvisory", "run", "1", "--", "count-interrupts")
	s.shows("counting")
	s.types(ctrlC)
	s.shows("interrupts: 1\r\n")
	if code := s.ends(); code != 0 {
		t.Errorf("exit code %d", code)
	}

	file := filepath.Join(t.TempDir(), "out")
	s = onTerminal(t, url, "sh", "-c", "exec pgadvisory run 1 -- count-interrupts > "+file)
	read := func() string {
		text, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return string(text)
	}
	eventually(t, "it counts", func() bool { return read() != "" })
	s.types(ctrlC)
	if code := s.ends(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(read(), "interrupts: 1\n") {
		t.Errorf("it wrote %q", read())
	}
}

// A shell stops and continues a command under a lock as it does any.
func TestJobControl(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	db := open(t, url)
	held := func(key int64) {
		t.Helper()
		eventually(t, "the lock is held", func() bool { return len(holders(t, db, advisory.Int64(key))) == 1 })
	}
	s := onTerminal(t, url, "sh", "-i")

	s.types("pgadvisory run 1 -- cat\n")
	held(1)
	s.types("hello\n")
	s.shows("hello\r\nhello\r\n") // typed, and by cat
	s.types(ctrlZ)
	s.shows("Stopped")
	s.types("echo prom''pt\n")
	s.shows("prompt\r\n")
	held(1)
	s.types("fg\n")
	s.shows("pgadvisory run 1 -- cat\r\n")
	s.types("again\n")
	s.shows("again\r\nagain\r\n")
	s.types(ctrlC)
	s.shows("^C")
	s.shows("$ ") // a shell throws away what was typed before
	s.types("echo code=$?\n")
	s.shows("code=130\r\n")
	free(t, db, advisory.Int64(1))

	// In a pipe, a command that reads the terminal gets it when it does.
	s.types("pgadvisory run 2 -- cat | tr a-z A-Z\n")
	held(2)
	s.types("hello\n")
	s.shows("HELLO\r\n")
	s.types(ctrlD)
	s.shows("$ ")
	s.types("echo prom''pt\n")
	s.shows("prompt\r\n")
	free(t, db, advisory.Int64(2))

	// Ctrl-C also ends the script that the command is a part of.
	s.types("sh -c 'pgadvisory run 3 -- sleep 1000; echo went on'\n")
	held(3)
	time.Sleep(100 * time.Millisecond) // the command runs
	s.types(ctrlC)
	s.shows("^C")
	s.shows("$ ")
	free(t, db, advisory.Int64(3))
	s.types("echo prom''pt\n")
	s.shows("prompt\r\n")
	s.mu.Lock()
	if strings.Count(s.text, "went on") != 1 { // as it was typed
		t.Error("the script went on")
	}
	s.mu.Unlock()
	s.types("exit\n")
}

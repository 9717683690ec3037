//go:build unix

package pgtest

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// These tests run this test binary once more, as a program or a test that is
// interrupted while it has a server.
const (
	programVar = "PGTEST_PROGRAM" // be a program that knows nothing of signals
	testVar    = "PGTEST_TEST"    // run TestToBeInterrupted alone
)

func init() {
	if os.Getenv(programVar) == "" {
		return
	}
	fmt.Println("starting")
	s, err := Start(context.Background())
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(place(s))
	select {}
}

func TestToBeInterrupted(t *testing.T) {
	if os.Getenv(testVar) == "" {
		t.Skip("runs in a process of its own")
	}
	u := URL(t)
	fmt.Println("starting")
	fmt.Println(place(SharedServer(t)))
	if _, err := open1(t, u).Exec("SELECT pg_sleep(60)"); err != nil {
		t.Error(err)
	}
}

// place returns what is left of a server that is not removed: a folder or the
// name of a container.
func place(s *Server) string {
	switch e := s.engine.(type) {
	case *cluster:
		return e.dir
	case *container:
		return e.name
	}
	return "none"
}

func TestInterruptedProgramLeavesNothing(t *testing.T) {
	Slow(t)
	NewServer(t).Close() // or skip
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			p := startSelf(t, programVar)
			place := p.line(t)
			if !exists(t, place) {
				t.Fatalf("%s is not there", place)
			}
			p.end(t, sig)
			p.leavesNothing(t, place)
		})
	}
}

func TestInterruptedTestsLeaveNothing(t *testing.T) {
	Slow(t)
	NewServer(t).Close()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			p := startSelf(t, testVar)
			place := p.line(t)
			p.end(t, sig)
			p.leavesNothing(t, place)
		})
	}
}

// Whatever it was doing: making the cluster, starting, running.
func TestProgramKilledWhileItStarts(t *testing.T) {
	Slow(t)
	if s := NewServer(t); s.Kind() != "binaries" {
		t.Skipf("for clusters: the watchdog of %s is the same at all times", s.Kind())
	}
	for _, after := range []time.Duration{0, 1, 20, 200, 500, 800} {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			p := startSelf(t, programVar)
			time.Sleep(after * time.Millisecond)
			p.end(t, syscall.SIGKILL)
			p.leavesNothing(t, "")
		})
	}
}

func TestInterruptedTestsDropTheirDatabasesOnTheUsersServer(t *testing.T) {
	Slow(t)
	s := NewServer(t)
	before := databases(t, s)
	p := startSelf(t, testVar, "DATABASE_URL="+s.URL(), "PGADVISORY_TEST_SERVER=url")
	p.line(t)
	if during := databases(t, s); len(during) != len(before)+1 {
		t.Errorf("databases %v", during)
	}
	p.end(t, syscall.SIGINT)
	if after := databases(t, s); !slices.Equal(after, before) {
		t.Errorf("databases %v, before %v", after, before)
	}
}

// A self is this test binary, run once more with a temporary folder and, unless
// env says otherwise, a throwaway server of its own.
type self struct {
	cmd *exec.Cmd
	out *bufio.Scanner
	tmp string
}

func startSelf(t *testing.T, as string, env ...string) *self {
	t.Helper()
	tmp, err := os.MkdirTemp("/tmp", "pgtest-") // short, and open to PostgreSQL's user
	if err == nil {
		err = os.Chmod(tmp, 0o711)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(tmp) })

	cmd := exec.Command(os.Args[0], "-test.run=^TestToBeInterrupted$")
	cmd.Env = append(os.Environ(), "DATABASE_URL=", "PGHOST=", "TMPDIR="+tmp, as+"=yes")
	if os.Getenv("PGADVISORY_TEST_SERVER") == kindURL {
		cmd.Env = append(cmd.Env, "PGADVISORY_TEST_SERVER=")
	}
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	p := &self{cmd, bufio.NewScanner(stdout), tmp}
	if first := p.line(t); first != "starting" {
		t.Fatal(first)
	}
	return p
}

func (p *self) line(t *testing.T) string {
	t.Helper()
	if !p.out.Scan() {
		t.Fatalf("no more output: %v", p.out.Err())
	}
	return p.out.Text()
}

// end sends sig to the process and its group, as a terminal does.
func (p *self) end(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(-p.cmd.Process.Pid, sig); err != nil {
		t.Fatal(err)
	}
	p.cmd.Wait()
}

// leavesNothing waits until all of the server is gone.
func (p *self) leavesNothing(t *testing.T, place string) {
	t.Helper()
	var left []string
	for range 200 {
		left = nil
		if place != "" && exists(t, place) {
			left = append(left, place)
		}
		files, _ := filepath.Glob(p.tmp + "/*")
		left = append(left, files...)
		left = append(left, processesIn(p.tmp)...)
		if len(left) == 0 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("left: %v", left)
}

func exists(t *testing.T, place string) bool {
	t.Helper()
	if filepath.IsAbs(place) {
		_, err := os.Stat(place)
		return err == nil
	}
	return exec.Command("docker", "container", "inspect", place).Run() == nil
}

// processesIn returns the processes whose working folder is below dir: those of
// a server are in its data folder. It needs /proc.
func processesIn(dir string) []string {
	var found []string
	cwds, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, cwd := range cwds {
		if at, err := os.Readlink(cwd); err == nil && strings.HasPrefix(at, dir) {
			found = append(found, cwd+" in "+at)
		}
	}
	return found
}

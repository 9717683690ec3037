package main

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// A process group that runs as another user cannot be killed, and is waited for.
func TestForeignProcessGroup(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be two users")
	}
	t.Parallel()
	job := exec.Command("sleep", "1000")
	job.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := job.Start(); err != nil {
		t.Fatal(err)
	}
	group := job.Process.Pid
	called := make(chan struct{})
	gone := make(chan struct{})
	go func() {
		runtime.LockOSThread() // which ends with the goroutine, and is nobody's until then
		const nobody = 65534
		if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, nobody, nobody, nobody); e != 0 {
			t.Error(e)
		}
		killGroup(group, func() { close(called) })
		close(gone)
	}()
	select {
	case <-called:
	case <-time.After(patience):
		t.Error("killGroup did not report that the group belongs to another user")
	}
	select {
	case <-gone:
		t.Error("it was not waited for")
	case <-time.After(200 * time.Millisecond):
	}
	job.Process.Kill()
	job.Wait()
	select {
	case <-gone:
	case <-time.After(patience):
		t.Error("it has ended, and is waited for")
	}
}

// A process of which only the first thread has ended runs, and one that nobody has waited
// for does not.
func TestGroupRuns(t *testing.T) {
	t.Parallel()
	job := exec.Command("sleep", "1000")
	job.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := job.Start(); err != nil {
		t.Fatal(err)
	}
	if !groupRuns(job.Process.Pid) {
		t.Error("it runs")
	}
	job.Process.Kill()
	eventually(t, "it does not", func() bool { return !groupRuns(job.Process.Pid) })
	job.Wait()
	if groupRuns(job.Process.Pid) {
		t.Error("it does not")
	}
}

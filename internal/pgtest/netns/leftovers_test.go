package netns

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

// start starts cmd inside a namespace, and waits until it is there.
func start(t *testing.T, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exe := fmt.Sprintf("/proc/%d/comm", cmd.Process.Pid)
	for deadline := time.Now().Add(soon); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if comm, err := os.ReadFile(exe); err == nil && string(comm) != "ip\n" && !strings.HasSuffix(string(comm), ".test\n") {
			return cmd
		}
	}
	t.Fatal("the command did not start")
	return nil
}

func killed(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	timer := time.AfterFunc(soon, func() { cmd.Process.Kill(); t.Error("the process was not killed") })
	cmd.Wait()
	timer.Stop()
}

func exists(ns string) bool {
	_, err := os.Stat(folder + "/" + ns)
	return err == nil
}

func gone(t *testing.T, ns string) {
	t.Helper()
	if exists(ns) {
		t.Errorf("%s is still there", ns)
	}
}

func TestLeftoversOfAKilledRunAreRemoved(t *testing.T) {
	p := pair(t)
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	living := start(t, exec.Command("sleep", "1000"))
	defer living.Process.Kill()

	leftover := fmt.Sprintf("%s%d-%d-1-server", prefix, ended.Process.Pid, 1)
	reused := fmt.Sprintf("%s%d-%d-1-server", prefix, living.Process.Pid, 1)
	others := fmt.Sprintf("%s%d-%s-1-server", prefix, living.Process.Pid, started(living.Process.Pid))
	for _, ns := range []string{leftover, reused, others} {
		if err := run("ip", "netns", "add", ns); err != nil {
			t.Fatal(err)
		}
		defer removeNS(ns)
	}
	sleep := start(t, p.Command(leftover, "sleep", "1000"))

	removeLeftovers()
	gone(t, leftover)
	gone(t, reused)
	killed(t, sleep)
	if !exists(others) || !exists(p.ServerNS) || !exists(p.ClientNS) {
		t.Error("a namespace in use was removed")
	}
}

func TestOrphaned(t *testing.T) {
	for _, name := range []string{
		"", "other", prefix, prefix + "1", prefix + "x-1-1-server", ownPrefix() + "1-server",
	} {
		if orphaned(name) {
			t.Errorf("%q is taken for a leftover", name)
		}
	}
	if name := prefix + "0-1-1-server"; !orphaned(name) {
		t.Errorf("%q is not taken for a leftover", name)
	}
}

func TestAvailableNamesTheMissingProgram(t *testing.T) {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("another reason comes first")
	}
	t.Setenv("PATH", t.TempDir())
	err := available()
	if err == nil || !strings.Contains(err.Error(), "package iproute2") {
		t.Errorf("without any program: %v", err)
	}
}

package netns

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// folder is where the program ip keeps namespaces by name.
const folder = "/var/run/netns"

// Names begin with the process that made them, by its id and its start (ids
// come again): pgadvisory-1234-567890-…. So a later run can tell what it may
// remove.
const prefix = "pgadvisory-"

func ownPrefix() string {
	pid := os.Getpid()
	return fmt.Sprintf("%s%d-%s-", prefix, pid, started(pid))
}

// orphaned is true for a name of ours whose process has ended.
func orphaned(name string) bool {
	rest, ours := strings.CutPrefix(name, prefix)
	parts := strings.Split(rest, "-")
	if !ours || len(parts) < 3 {
		return false
	}
	pid, err := strconv.Atoi(parts[0])
	return err == nil && started(pid) != parts[1]
}

// started is when a process started, in the kernel's ticks; empty if there is
// none of that id.
func started(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The second field is the program's name in parentheses, with anything in it.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const state, start = 3, 22 // as proc(5) counts
	if len(fields) <= start-state {
		return ""
	}
	return fields[start-state]
}

// removeLeftovers removes the namespaces of processes that were killed. Another
// process may be doing the same.
func removeLeftovers() {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return // none was ever made
	}
	for _, e := range entries {
		if orphaned(e.Name()) {
			removeNS(e.Name())
		}
	}
}

// removeNS kills what runs in ns and removes it.
func removeNS(ns string) error {
	if _, err := os.Stat(folder + "/" + ns); os.IsNotExist(err) {
		return nil
	}
	out, _ := exec.Command("ip", "netns", "pids", ns).Output()
	for _, field := range strings.Fields(string(out)) {
		pid, err := strconv.Atoi(field)
		if err != nil || pid == os.Getpid() {
			continue
		}
		if process, err := os.FindProcess(pid); err == nil {
			process.Kill()
		}
	}
	return run("ip", "netns", "delete", ns)
}

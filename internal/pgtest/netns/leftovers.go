package netns

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// folder is where the program ip keeps named namespaces.
const folder = "/var/run/netns"

// prefix begins all names. The id and the start of the process that made the namespace follow,
// because ids are reused: pgadvisory-1234-567890-…. So a later run can recognize what it may
// remove.
const prefix = "pgadvisory-"

func ownPrefix() string {
	pid := os.Getpid()
	return fmt.Sprintf("%s%d-%s-", prefix, pid, started(pid))
}

// orphaned reports whether name is one of this package, and its process has ended.
func orphaned(name string) bool {
	rest, ours := strings.CutPrefix(name, prefix)
	parts := strings.Split(rest, "-")
	if !ours || len(parts) < 3 {
		return false
	}
	pid, err := strconv.Atoi(parts[0])
	return err == nil && started(pid) != parts[1]
}

// started returns when a process started, in the kernel's ticks, or "" if there is no such process.
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

// removeNS kills the processes in ns and removes ns.
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

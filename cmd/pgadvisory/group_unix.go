//go:build linux || darwin || freebsd

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// killGroup kills a process group and returns when none of it is left.
func killGroup(group int) {
	for syscall.Kill(-group, syscall.SIGKILL) == nil && groupRuns(group) {
		time.Sleep(time.Millisecond)
	}
}

// groupRuns reports whether there is a process in the group that has not ended.
func groupRuns(group int) bool {
	if syscall.Kill(-group, 0) == syscall.ESRCH {
		return false
	}
	// There may be only such as have ended and that nobody has waited for, as in a
	// container whose first process does not.
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, stat := range stats {
		text, err := os.ReadFile(stat)
		if err != nil {
			continue // it has ended since
		}
		// pid (name) state parent group …, where the name may hold anything
		fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
		if len(fields) < 3 || string(fields[2]) != strconv.Itoa(group) {
			continue
		}
		if state := fields[0][0]; state != 'Z' && state != 'X' {
			return true
		}
	}
	return len(stats) == 0
}

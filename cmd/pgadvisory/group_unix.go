//go:build linux || darwin || freebsd

package main

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"
)

// killGroup kills a process group and returns when none of it is left. It calls foreign once if the
// kill needs the privileges of another user.
func killGroup(group int, foreign func()) {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		if syscall.Kill(-group, syscall.SIGKILL) == syscall.EPERM && foreign != nil {
			foreign()
			foreign = nil
		}
		if !groupRuns(group) {
			return
		}
		time.Sleep(pause)
	}
}

// groupRuns reports whether the group has a process that has not ended. If in doubt it returns true.
func groupRuns(group int) bool {
	switch syscall.Kill(-group, 0) {
	case syscall.ESRCH:
		return false
	case syscall.EPERM: // another user's, which /proc may hide
		return true
	}
	// The group may consist of zombies only, as in a container whose first process does not wait for
	// its children. /proc is read twice, because during one read a process may start another and
	// end.
	for range 2 {
		if !allEnded(group) {
			return true
		}
	}
	return false
}

// allEnded reports whether /proc could be read completely and has no running process of the group.
func allEnded(group int) bool {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return false
	}
	processes := 0
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		processes++
		text, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			return false // the process has ended since, and may have started another
		}
		// pid (name) state parent group … and, as the 20th, the number of threads. The name
		// may hold anything.
		fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
		if len(fields) < 18 {
			return false
		}
		if string(fields[2]) != strconv.Itoa(group) {
			continue
		}
		// A process whose first thread has ended looks like a zombie.
		threads, err := strconv.Atoi(string(fields[17]))
		if state := fields[0][0]; state != 'Z' && state != 'X' || err != nil || threads > 1 {
			return false
		}
	}
	return processes > 0
}

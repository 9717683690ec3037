//go:build darwin || freebsd

package main

import (
	"os/signal"
	"syscall"
)

// byDefault calls f while a signal has its default effect on this process. Here that works for SIGINT
// only.
func byDefault(s syscall.Signal, f func()) bool {
	if s != syscall.SIGINT {
		return false
	}
	signal.Reset(s)
	f()
	return true
}

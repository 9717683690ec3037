//go:build darwin || freebsd

package main

import (
	"os/signal"
	"syscall"
)

// byDefault calls f while a signal has the effect that it has on any process, where that
// can be had: for SIGINT.
func byDefault(s syscall.Signal, f func()) bool {
	if s != syscall.SIGINT {
		return false
	}
	signal.Reset(s)
	f()
	return true
}

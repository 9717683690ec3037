package main

import (
	"syscall"
	"unsafe"
)

// byDefault calls f while a signal has its default effect on this process. signal.Reset is not
// enough: after it, Go's runtime ignores SIGTSTP, and prints all stacks on SIGQUIT.
func byDefault(s syscall.Signal, f func()) bool {
	var none, ours [64]byte // a struct sigaction of zeros is SIG_DFL everywhere
	swap := func(set, was *[64]byte) bool {
		_, _, e := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(was)), 8, 0, 0)
		return e == 0
	}
	if !swap(&none, &ours) {
		return false
	}
	f()
	return swap(&ours, nil)
}

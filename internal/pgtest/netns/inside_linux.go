package netns

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
)

// setns is the number of the system call, which package syscall does not define on all architectures.
var setns = map[string]uintptr{
	"386":     346,
	"amd64":   308,
	"arm":     375,
	"arm64":   268,
	"loong64": 268,
	"ppc64le": 350,
	"riscv64": 268,
	"s390x":   339,
}

// inside calls f on a thread in ns. If the thread cannot return to its namespace it stays locked,
// so it ends with the goroutine.
func inside(ns string, f func() error) error {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("netns: %w", err)
	}
	defer home.Close()
	there, err := os.Open(folder + "/" + ns)
	if err != nil {
		return fmt.Errorf("netns: %w", err)
	}
	defer there.Close()
	if err := enter(there); err != nil {
		return err
	}
	defer func() {
		if enter(home) == nil {
			runtime.UnlockOSThread()
		}
	}()
	return f()
}

func enter(ns *os.File) error {
	number, ok := setns[runtime.GOARCH]
	if !ok {
		return fmt.Errorf("netns: the number of setns on %s is not known here", runtime.GOARCH)
	}
	if _, _, errno := syscall.RawSyscall(number, ns.Fd(), syscall.CLONE_NEWNET, 0); errno != 0 {
		return fmt.Errorf("netns: setns %s: %w", ns.Name(), errno)
	}
	return nil
}

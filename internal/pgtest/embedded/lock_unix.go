//go:build linux || darwin

package main

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lock waits until this process is the only one that has locked the file. The system unlocks it
// when the process ends.
func lock(ctx context.Context, name string) (unlock func() error, err error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return file.Close, nil
		}
		if err != syscall.EWOULDBLOCK && err != syscall.EINTR {
			file.Close()
			return nil, fmt.Errorf("locking %s: %w", name, err)
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, fmt.Errorf("another process fetches the same archive, by %s: %w", name, context.Cause(ctx))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

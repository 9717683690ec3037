package harness

import "runtime"

// PanicOf returns what f panics with.
func PanicOf(f func()) (v any) {
	defer func() { v = recover() }()
	f()
	return nil
}

// ExitGoroutine ends the goroutine, as t.FailNow does.
func ExitGoroutine() { runtime.Goexit() }

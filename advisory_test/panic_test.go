package advisory_test

import "runtime"

// panicOf returns what f panics with.
func panicOf(f func()) (v any) {
	defer func() { v = recover() }()
	f()
	return nil
}

// exitGoroutine ends the goroutine, as t.FailNow does.
func exitGoroutine() { runtime.Goexit() }

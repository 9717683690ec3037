package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
)

// Main runs the tests of a package, closes every server and exits. It is for
// TestMain:
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
// On SIGINT and SIGTERM, too, it closes every server before it exits. Without it,
// and after SIGKILL, no throwaway server stays behind either, but databases may,
// on a server that the user named.
func Main(m *testing.M) {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted
		signal.Stop(interrupted) // a second one ends the program at once
		Shutdown()
		os.Exit(1)
	}()

	code := m.Run()
	if err := Shutdown(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// Shutdown closes every server of this process. It is for a TestMain that cannot
// use Main, which does so by itself.
func Shutdown() error {
	var errs []error
	for _, s := range open.all() {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

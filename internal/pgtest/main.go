package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
)

// Main runs the tests of a package, closes every server and exits. Call it in TestMain:
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
// It also closes every server on SIGINT and SIGTERM. Without Main, and after SIGKILL, no temporary
// server is left, but databases may be left on a server that the user named.
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

// Shutdown closes every server of this process. It is for a TestMain that cannot use Main.
func Shutdown() error {
	var errs []error
	for _, s := range open.all() {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

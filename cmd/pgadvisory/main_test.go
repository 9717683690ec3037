package main

import (
	"fmt"
	"os"
	"os/signal"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// The test binary is pgadvisory, too, where it is called so; testscript puts it into PATH.
func TestMain(m *testing.M) {
	testscript.Main(closing{m}, map[string]func(){"pgadvisory": main, "count-interrupts": countInterrupts})
}

// tempDir is there for all tests together.
var tempDir string

// closing closes the servers when the tests have run.
type closing struct{ *testing.M }

func (c closing) Run() int {
	var err error
	if tempDir, err = os.MkdirTemp("", "pgadvisory-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(tempDir)
	code := c.M.Run()
	if pgtest.Shutdown() != nil {
		return max(code, 1)
	}
	return code
}

// countInterrupts is a command that tells how many SIGINT it gets, until a moment after the
// first.
func countInterrupts() {
	c := make(chan os.Signal, 10)
	signal.Notify(c, os.Interrupt)
	fmt.Println("counting")
	n := 0
	for end := time.After(patience); ; {
		select {
		case <-c:
			if n++; n == 1 {
				end = time.After(500 * time.Millisecond)
			}
			continue
		case <-end:
		}
		fmt.Printf("interrupts: %d\n", n)
		return
	}
}

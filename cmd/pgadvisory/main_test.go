package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
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

// built is the program as users have it. The one that is in PATH on a terminal is the test binary:
// it may have the race detector in it, and is too slow for crowds and scripts then.
var built = sync.OnceValues(func() (string, error) {
	path := filepath.Join(tempDir, "pgadvisory")
	out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, out)
	}
	return path, nil
})

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

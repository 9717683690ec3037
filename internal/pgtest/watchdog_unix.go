//go:build unix

package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// A watchdog is a process that cleans up after a server: when clean is called, or when this program
// ends for any reason, because then the pipe that the watchdog reads ends.
type watchdog struct {
	cmd  *exec.Cmd
	pipe *os.File
}

// watch starts a watchdog: a shell script that reads its standard input to the end and then cleans
// up.
func watch(script string, args ...string) (*watchdog, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd := exec.Command("/bin/sh", append([]string{"-c", script, "pgadvisory-watchdog"}, args...)...)
	cmd.Dir = "/"
	cmd.Stdin = r
	apart(cmd)
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return &watchdog{cmd, w}, nil
}

// send sends a line to the script.
func (d *watchdog) send(v any) error {
	_, err := fmt.Fprintln(d.pipe, v)
	return err
}

// clean makes the script clean up, and returns when that is done.
func (d *watchdog) clean() error {
	return errors.Join(d.pipe.Close(), d.cmd.Wait())
}

// apart protects cmd from signals to this program's group, because cmd must outlive this program.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

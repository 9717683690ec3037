//go:build unix

package pgtest

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// A watchdog is a process that removes a cluster: when it is told to, or when
// this program ends, however that comes about, for then the pipe ends from
// which it reads.
type watchdog struct {
	cmd  *exec.Cmd
	pipe *os.File
}

//go:embed watchdog.sh
var watchdogScript string

func watch(dir string) (*watchdog, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd := exec.Command("/bin/sh", "-c", watchdogScript, "pgadvisory-watchdog", dir)
	cmd.Dir = "/"
	cmd.Stdin = r
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // signals to this program's group do not reach it
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return &watchdog{cmd, w}, nil
}

// guard tells which process to end with the program; 0 is none.
func (d *watchdog) guard(pid int) error {
	_, err := fmt.Fprintln(d.pipe, pid)
	return err
}

// clean removes the cluster, whose server has ended.
func (d *watchdog) clean() error {
	return errors.Join(d.pipe.Close(), d.cmd.Wait())
}

//go:build !unix

package pgtest

import "os/exec"

// apart does nothing: here there are no groups of processes.
func apart(*exec.Cmd) {}

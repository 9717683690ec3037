//go:build !unix

package pgtest

import "os/exec"

// apart does nothing: this system has no process groups.
func apart(*exec.Cmd) {}

//go:build darwin || freebsd

package main

import "syscall"

// dieWithParent does nothing: here the keeper alone ends the command.
func dieWithParent(*syscall.SysProcAttr) {}

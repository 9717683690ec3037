//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package main

import "syscall"

// dieWithParent leaves it to the keeper alone.
func dieWithParent(*syscall.SysProcAttr) {}

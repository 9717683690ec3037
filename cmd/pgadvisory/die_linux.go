package main

import "syscall"

// dieWithParent makes the kernel kill the command when this process ends for any reason. The keeper
// kills the processes that the command has started.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

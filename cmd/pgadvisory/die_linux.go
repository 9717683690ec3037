package main

import "syscall"

// dieWithParent has the command killed when this process is gone, however that comes about.
// What the command has started is the keeper's to kill.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

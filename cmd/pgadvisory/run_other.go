//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package main

import "io"

func keeperWanted() bool { return false }

func keeper(io.Reader, io.Writer) int { return exitSystem }

func (r *run) underLock() error {
	return fail(exitSystem, "run needs a Unix system, for its process groups; the other subcommands do not")
}

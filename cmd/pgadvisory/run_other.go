//go:build !(linux || darwin || freebsd)

package main

import "io"

func keeperWanted() bool { return false }

func keeper(io.Reader, io.Writer) int { return exitSystem }

func (r *run) underLock() error {
	return fail(exitSystem, "run needs Linux, macOS or FreeBSD, for their process groups; the other subcommands do not")
}

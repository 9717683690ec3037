//go:build unix

package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const embeddedCommand = "./internal/pgtest/embedded"

// embedded returns the folder with the initdb and postgres of the embedded server. A separate
// program fetches them when they are first needed: it is compiled by those alone who have no other
// server.
func (m machine) embedded(ctx context.Context) (bindir string, err error) {
	r, err := m.release()
	if err != nil {
		return "", err
	}
	if r.folder.Check() != nil {
		if err := fetches.do(ctx, r); err != nil {
			return "", err
		}
	}
	return r.folder.Bin(), nil
}

// fetches are those of this process.
var fetches = fetcher{turn: make(chan struct{}, 1), failed: make(map[release]error)}

// A fetcher fetches one archive at a time. It remembers failures, because a firewall may take
// minutes to fail, for each test.
type fetcher struct {
	turn   chan struct{}
	failed map[release]error
}

func (f *fetcher) do(ctx context.Context, r release) error {
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := f.failed[r]; err != nil {
		return err
	}
	err := r.fetch(ctx)
	if err != nil && ctx.Err() == nil {
		f.failed[r] = err
	}
	return err
}

// fetch runs the program that fetches the archive. The program gives up when ctx ends, and also when
// this process is killed, because then its input ends.
func (r release) fetch(ctx context.Context) error {
	dir, err := moduleFolder(ctx)
	if err != nil {
		return fmt.Errorf("fetching PostgreSQL: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "run", embeddedCommand, r.url, r.sha256, string(r.folder))
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	var failure bytes.Buffer
	cmd.Stdout = &failure
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	defer in.Close()
	apart(cmd)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 10 * time.Second
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case failure.Len() > 0:
		return errors.New(strings.TrimSpace(failure.String()))
	case err != nil:
		return fmt.Errorf("go run %s: %w", embeddedCommand, err)
	}
	return r.folder.Check()
}

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/pgtest/embedded/folder"
)

// A fetch brings an archive onto this machine, unpacked.
type fetch struct {
	url      string
	sha256   string // of the archive, in hexadecimal digits
	to       folder.Folder
	client   *http.Client
	patience time.Duration // with a server that sends nothing
	news     io.Writer     // gets a line about each download
}

// run makes the folder, unless another process has made it. A rename makes it appear complete.
func (f fetch) run(ctx context.Context) error {
	if err := f.makeParent(); err != nil {
		return fmt.Errorf("%w (the variable XDG_CACHE_HOME names another cache folder)", err)
	}
	unlock, err := lock(ctx, string(f.to)+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	if f.to.Check() == nil {
		return nil
	}
	if err := f.removeLeft(); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(string(f.to)), filepath.Base(string(f.to))+"-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := f.fill(ctx, folder.Folder(tmp)); err != nil {
		return err
	}
	return os.Rename(tmp, string(f.to))
}

// fill makes the folder under a temporary name.
func (f fetch) fill(ctx context.Context, tmp folder.Folder) error {
	archive := filepath.Join(string(tmp), "archive.jar")
	if err := f.download(ctx, archive); err != nil {
		return fmt.Errorf("fetching %s: %w", f.url, err)
	}
	if err := unpack(ctx, archive, tmp.Programs()); err != nil {
		return fmt.Errorf("unpacking %s: %w", f.url, err)
	}
	for _, name := range []string{"initdb", "postgres"} {
		if _, err := os.Stat(filepath.Join(tmp.Bin(), name)); err != nil {
			return fmt.Errorf("%s has no bin/%s", f.url, name)
		}
	}
	if err := os.Remove(archive); err != nil {
		return err
	}
	if err := os.Chmod(string(tmp), 0o755); err != nil {
		return err
	}
	return tmp.Seal()
}

// makeParent makes the folder that holds f.to. Root's must be open to the user that the server runs
// as, whatever the umask.
func (f fetch) makeParent() error {
	parent := filepath.Dir(string(f.to))
	if err := os.MkdirAll(parent, 0o755); err != nil || os.Geteuid() != 0 {
		return err
	}
	for _, dir := range []string{filepath.Dir(parent), parent} {
		if err := os.Chmod(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// removeLeft removes what a killed process left, and an incomplete folder. The lock is held, so
// nobody else is at work there.
func (f fetch) removeLeft() error {
	left, err := filepath.Glob(string(f.to) + "-*")
	if err != nil {
		return err
	}
	for _, dir := range append(left, string(f.to)) {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}

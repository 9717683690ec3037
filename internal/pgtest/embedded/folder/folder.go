// Package folder has the place where the programs of the embedded server are kept.
package folder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// A Folder holds the programs, and a file with their number and size.
type Folder string

// Programs returns the folder into which the archive is unpacked.
func (f Folder) Programs() string { return filepath.Join(string(f), "programs") }

// Bin returns the folder with initdb and postgres.
func (f Folder) Bin() string { return filepath.Join(f.Programs(), "bin") }

func (f Folder) size() string { return filepath.Join(string(f), "size") }

// Seal records what Programs holds. It is the last step of whoever makes the folder.
func (f Folder) Seal() error {
	size, err := measure(f.Programs())
	if err != nil {
		return err
	}
	return os.WriteFile(f.size(), []byte(size), 0o644)
}

// Check fails unless Programs holds what Seal recorded. A power failure may have taken the content
// of files, and users clean their caches.
func (f Folder) Check() error {
	want, err := os.ReadFile(f.size())
	if err != nil {
		return err
	}
	size, err := measure(f.Programs())
	if err == nil && size != string(want) {
		err = fmt.Errorf("%s has %s, not %s", f.Programs(), size, want)
	}
	return err
}

// measure counts what is in a folder.
func measure(dir string) (string, error) {
	var files, links, bytes int64
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.Type().IsRegular():
			info, err := entry.Info()
			if err != nil {
				return err
			}
			files, bytes = files+1, bytes+info.Size()
		case entry.Type() == fs.ModeSymlink:
			links++
		case !entry.IsDir():
			return errors.New(path + " is neither a file nor a folder nor a link")
		}
		return nil
	})
	return fmt.Sprintf("%d files, %d links, %d bytes", files, links, bytes), err
}

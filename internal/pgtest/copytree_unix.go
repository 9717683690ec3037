//go:build unix

package pgtest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// A treeSize is the number and the size of the files in a folder.
type treeSize struct {
	files int
	bytes int64
}

func (s treeSize) String() string { return fmt.Sprintf("%d files, %d bytes", s.files, s.bytes) }

// copyTree copies the folder src, of folders and regular files, to dst, which must not exist. It
// calls own for each file and folder that it makes.
func copyTree(src, dst string, own func(string) error) (size treeSize, err error) {
	err = filepath.WalkDir(src, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(src, path)
		if err != nil {
			return err
		}
		to := filepath.Join(dst, name)
		switch {
		case entry.IsDir():
			err = os.Mkdir(to, 0o700)
		case entry.Type().IsRegular():
			var n int64
			n, err = copyFile(path, to)
			size.files, size.bytes = size.files+1, size.bytes+n
		default:
			err = fmt.Errorf("%s is neither a folder nor a regular file", path)
		}
		if err != nil {
			return err
		}
		return own(to)
	})
	return size, err
}

// copyFile copies a file. The two files share their blocks if the file system supports that.
func copyFile(src, dst string) (int64, error) {
	from, err := os.Open(src)
	if err != nil {
		return 0, err
	}
	defer from.Close()
	to, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(to, from)
	return n, errors.Join(err, to.Close())
}

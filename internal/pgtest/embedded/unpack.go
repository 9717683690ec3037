package main

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ulikunitz/xz"
)

// unpack makes the folder dir of the archive: a jar, which is a zip file, with one tar file, which
// xz has compressed.
func unpack(ctx context.Context, archive, dir string) error {
	jar, err := zip.OpenReader(archive)
	if err != nil {
		return err
	}
	defer jar.Close()
	for _, file := range jar.File {
		if !strings.HasSuffix(file.Name, ".txz") {
			continue
		}
		txz, err := file.Open()
		if err != nil {
			return err
		}
		defer txz.Close()
		return untar(ctx, txz, dir)
	}
	return errors.New("it has no .txz file")
}

// untar unpacks a tar file that xz has compressed. Nothing of it gets out of dir, whatever names and
// links the file has: root refuses such a path.
func untar(ctx context.Context, txz io.Reader, dir string) error {
	plain, err := xz.NewReader(bufio.NewReader(txz)) // which reads bytes, one by one
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	all := tar.NewReader(reader(func(p []byte) (int, error) {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		return plain.Read(p)
	}))
	for {
		entry, err := all.Next()
		if err == io.EOF {
			return finish(root)
		}
		if err == nil {
			err = put(root, entry, all)
		}
		if err != nil {
			return err
		}
	}
}

// put makes one file, folder or link.
func put(root *os.Root, entry *tar.Header, content io.Reader) error {
	name := filepath.Clean(entry.Name)
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	switch entry.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, 0o755)
	case tar.TypeReg:
		return putFile(root, name, entry.FileInfo().Mode()&0o111 != 0, content)
	case tar.TypeSymlink:
		return root.Symlink(entry.Linkname, name)
	case tar.TypeLink:
		return root.Link(filepath.Clean(entry.Linkname), name)
	case tar.TypeXGlobalHeader:
		return nil
	}
	return fmt.Errorf("%s is neither a file nor a folder nor a link", entry.Name)
}

// putFile makes a file that everybody may read, whatever the umask, because the server of root runs
// as another user.
func putFile(root *os.Root, name string, program bool, content io.Reader) error {
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := io.Copy(file, content); err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if program {
		mode = 0o755
	}
	if err := file.Chmod(mode); err != nil {
		return err
	}
	return file.Close()
}

// finish opens all folders to everybody. It refuses a link that leads out of root.
func finish(root *os.Root) error {
	return fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return root.Chmod(name, 0o755)
		case entry.Type() == fs.ModeSymlink:
			if _, err := root.Stat(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		return nil
	})
}

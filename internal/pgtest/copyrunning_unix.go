//go:build unix

package pgtest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// notCopied are the files of a data folder that belong to the running server alone.
var notCopied = map[string]bool{
	"postmaster.pid": true, "postmaster.opts": true, "postgresql.auto.conf": true, "current_logfiles": true,
	"standby.signal": true, "recovery.signal": true, "backup_label": true, "tablespace_map": true,
}

// copiedEmpty are the folders of which a standby gets only the folder. It streams pg_wal.
var copiedEmpty = map[string]bool{
	"pg_wal": true, "pg_replslot": true, "pg_dynshmem": true, "pg_notify": true, "pg_serial": true,
	"pg_snapshots": true, "pg_stat_tmp": true, "pg_subtrans": true,
}

// copyRunning copies the data folder of a running server, within a backup. Files may vanish
// meanwhile.
func copyRunning(src, dst string, own func(string) error) error {
	return filepath.WalkDir(src, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(src, path)
		if err != nil {
			return err
		}
		top, below, _ := strings.Cut(filepath.ToSlash(name), "/")
		to := filepath.Join(dst, name)
		switch {
		case notCopied[name], strings.HasPrefix(entry.Name(), "pgsql_tmp"),
			copiedEmpty[top] && below != "" && below != "archive_status":
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir():
			err = os.Mkdir(to, 0o700)
		case entry.Type().IsRegular():
			_, err = copyFile(path, to)
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
		default:
			return errors.New(path + " is neither a folder nor a regular file")
		}
		if err != nil {
			return err
		}
		return own(to)
	})
}

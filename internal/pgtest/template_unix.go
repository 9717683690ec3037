//go:build unix

package pgtest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// A template is a data folder as initdb makes it, kept in the user's cache: a copy takes a fraction
// of the time of an initdb. It belongs to the user of this program, even if the server runs as
// another, and contains no password. The zero template is always empty.
type template struct {
	dir string // data, size
}

// templateOf returns the template for key. The key must change whenever initdb would make something
// else. If the user has no cache folder, it returns the zero template: a folder that all users
// share is not safe.
func templateOf(key string) template {
	cache, err := os.UserCacheDir()
	if err != nil {
		return template{}
	}
	return template{filepath.Join(cache, "pgadvisory", "templates", fmt.Sprintf("%.12x", sha256.Sum256([]byte(key))))}
}

func (t template) data() string { return filepath.Join(t.dir, "data") }
func (t template) size() string { return filepath.Join(t.dir, "size") }

var errNoTemplate = errors.New("there is no template")

// copyTo makes dst a copy of the data folder. own makes its files the server's. If there is no
// template, or it is not complete, copyTo fails and dst does not exist. It removes an incomplete
// template.
func (t template) copyTo(dst string, own func(string) error) error {
	want, err := os.ReadFile(t.size())
	if err != nil {
		return errNoTemplate
	}
	now := time.Now()
	os.Chtimes(t.size(), now, now) // for removeUnused
	got, err := copyTree(t.data(), dst, own)
	if err == nil && got.String() == string(want) {
		return nil
	}
	if err == nil {
		err = errors.Join(fmt.Errorf("template %s has %v, not %s", t.dir, got, want), os.RemoveAll(t.dir))
	}
	return errors.Join(err, os.RemoveAll(dst))
}

// keep makes a copy of the data folder src the template. A rename makes it appear complete. If two
// processes do so, the first wins. After an error the next server runs initdb again.
func (t template) keep(src string) error {
	if t.dir == "" {
		return errNoTemplate
	}
	if err := os.MkdirAll(filepath.Dir(t.dir), 0o700); err != nil {
		return err
	}
	removeUnused(filepath.Dir(t.dir))
	tmp := template{t.dir + "-" + random(6)}
	defer os.RemoveAll(tmp.dir)
	if err := os.Mkdir(tmp.dir, 0o700); err != nil {
		return err
	}
	size, err := copyTree(src, tmp.data(), func(string) error { return nil })
	if err != nil {
		return err
	}
	if err := os.WriteFile(tmp.size(), []byte(size.String()), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp.dir, t.dir)
}

// removeUnused removes the templates that were not copied for a month, and incomplete ones of killed
// processes.
func removeUnused(templates string) {
	all, _ := os.ReadDir(templates)
	for _, entry := range all {
		t, unused := template{filepath.Join(templates, entry.Name())}, 30*24*time.Hour
		info, err := os.Stat(t.size())
		if err != nil {
			info, err = entry.Info()
			unused = time.Hour
		}
		if err == nil && time.Since(info.ModTime()) > unused {
			os.RemoveAll(t.dir)
		}
	}
}

//go:build unix

package pgtest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestServersAreCopiesOfOneInitdb(t *testing.T) {
	Slow(t)
	keepPrograms(t)
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache) // for macOS
	a := cluster1(t)
	all, _ := filepath.Glob(cache + "/*/templates/*")
	if more, _ := filepath.Glob(cache + "/*/*/templates/*"); len(all) == 0 {
		all = more
	}
	if len(all) != 1 {
		t.Fatalf("templates after the first server: %v", all)
	}
	template := all[0]
	b := cluster1(t)
	if idA, idB := ask[string](t, a.URL(), systemID), ask[string](t, b.URL(), systemID); idA != idB {
		t.Errorf("the second server has had an initdb of its own: %s, %s", idA, idB)
	}
	if strings.Contains(a.URL(), passwordOf(b)) {
		t.Error("two servers have one password")
	}

	// A template that has lost a file is not copied, and is made anew.
	if err := os.Remove(filepath.Join(template, "data/global/pg_control")); err != nil {
		t.Fatal(err)
	}
	c, d := cluster1(t), cluster1(t)
	idA, idC, idD := ask[string](t, a.URL(), systemID), ask[string](t, c.URL(), systemID), ask[string](t, d.URL(), systemID)
	if idC == idA || idC != idD {
		t.Errorf("system identifiers: %s, then with a damaged template %s, then %s", idA, idC, idD)
	}
}

const systemID = "SELECT system_identifier::text FROM pg_control_system()"

func cluster1(t *testing.T) *Server {
	t.Helper()
	s := NewServer(t)
	if s.Kind() != kindBinaries {
		t.Skipf("for clusters, not %s", s.Kind())
	}
	return s
}

// keepPrograms keeps the test to the programs that servers have here, for a test of other cache
// folders: an embedded server's would be fetched anew, and the go command would miss its cache.
func keepPrograms(t *testing.T) {
	t.Helper()
	s := cluster1(t)
	t.Setenv("PGADVISORY_TEST_SERVER", kindBinaries)
	t.Setenv("PGADVISORY_TEST_BINDIR", s.BinDir())
}

func passwordOf(s *Server) string {
	password, _ := s.url.User.Password()
	return password
}

// A cache that cannot be written costs time, and no more.
func TestServerWithoutACache(t *testing.T) {
	Slow(t)
	keepPrograms(t)
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "")
	t.Setenv("XDG_CACHE_HOME", file)
	t.Setenv("HOME", file)
	cluster1(t)
}

func TestOneOfTwoTemplatesWins(t *testing.T) {
	src := t.TempDir()
	for _, name := range []string{"PG_VERSION", "base/1/2", "global/pg_control"} {
		write(t, filepath.Join(src, name), name)
	}
	tmpl := template{filepath.Join(t.TempDir(), "templates", "key")}
	var mu sync.Mutex
	var kept int
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if tmpl.keep(src) == nil {
				mu.Lock()
				defer mu.Unlock()
				kept++
			}
		})
	}
	all.Wait()
	entries, err := os.ReadDir(filepath.Dir(tmpl.dir))
	if kept != 1 || err != nil || len(entries) != 1 {
		t.Errorf("%d won; there: %v, %v", kept, entries, err)
	}
	dst := filepath.Join(t.TempDir(), "data")
	var owned int
	if err := tmpl.copyTo(dst, func(string) error { owned++; return nil }); err != nil || owned != 7 {
		t.Errorf("%v; %d files and folders were given away, want 7", err, owned)
	}
}

// Neither a template that is not whole nor a copy that is not stays.
func TestHalfACopyIsNone(t *testing.T) {
	src := t.TempDir()
	write(t, filepath.Join(src, "a"), "a")
	write(t, filepath.Join(src, "b"), "b")
	tmpl := template{filepath.Join(t.TempDir(), "key")}
	if err := tmpl.keep(src); err != nil {
		t.Fatal(err)
	}
	full := errors.New("no space left on device")
	dst := filepath.Join(t.TempDir(), "data")
	err := tmpl.copyTo(dst, func(file string) error {
		if filepath.Base(file) == "b" {
			return full
		}
		return nil
	})
	if !errors.Is(err, full) || exists(t, dst) || !exists(t, tmpl.dir) {
		t.Errorf("%v; copy %v, template %v", err, exists(t, dst), exists(t, tmpl.dir))
	}
	if err := os.Truncate(filepath.Join(tmpl.data(), "a"), 0); err != nil {
		t.Fatal(err)
	}
	err = tmpl.copyTo(dst, func(string) error { return nil })
	if err == nil || exists(t, dst) || exists(t, tmpl.dir) {
		t.Errorf("a damaged template: %v; copy %v, template %v", err, exists(t, dst), exists(t, tmpl.dir))
	}
}

func TestUnusedTemplatesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		name string
		age  time.Duration
		size bool
	}{
		{"old", 31 * 24 * time.Hour, true},
		{"used", 29 * 24 * time.Hour, true},
		{"half", 2 * time.Hour, false},
		{"new", time.Minute, false},
	} {
		tmpl := template{filepath.Join(dir, c.name)}
		write(t, filepath.Join(tmpl.data(), "f"), "")
		aged := tmpl.dir
		if c.size {
			write(t, tmpl.size(), "")
			aged = tmpl.size()
		}
		then := time.Now().Add(-c.age)
		if err := os.Chtimes(aged, then, then); err != nil {
			t.Fatal(err)
		}
	}
	removeUnused(dir)
	left, _ := filepath.Glob(dir + "/*")
	if len(left) != 2 || filepath.Base(left[0]) != "new" || filepath.Base(left[1]) != "used" {
		t.Errorf("left: %v", left)
	}
}

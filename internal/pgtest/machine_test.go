package pgtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNoneToBeHad(t *testing.T) {
	repository, requests := repository(t, nil)
	m := with(map[string]string{
		"PATH": t.TempDir(), "DOCKER_HOST": "unix:///nowhere/docker.sock",
		"PGADVISORY_TEST_MAVEN": repository, "XDG_CACHE_HOME": t.TempDir(),
	})
	m.folders = []string{"/nowhere/*/bin"}
	for name, start := range map[string]func() error{
		"any":       func() error { _, err := m.any(context.Background()); return err },
		"throwaway": func() error { _, err := m.throwaway(context.Background(), Options{}); return err },
	} {
		err := start()
		if _, ok := errors.AsType[*noServerError](err); !ok {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, want := range []string{
			"DATABASE_URL=", "make setup", "apt-get install postgresql", "dnf install postgresql-server", "brew install postgresql",
			"Docker engine", "/nowhere/*/bin", "/nowhere/docker.sock", "PGADVISORY_TEST_MAVEN", repository + "/io/zonky", "404 Not Found",
		} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s does not tell of %s:\n%v", name, want, err)
			}
		}
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("%d requests: a failure is not remembered", n)
	}
}

func TestForcedKindIsTheOnlyOne(t *testing.T) {
	vars := map[string]string{"DOCKER_HOST": "unix:///nowhere/docker.sock", "DATABASE_URL": "postgres://nowhere/", "PGADVISORY_TEST_BINDIR": "/nowhere/bin", "PGADVISORY_TEST_SHA256": "0"}
	for kind, want := range map[string]struct{ has, lacks string }{
		"binaries": {"/nowhere/bin", "docker.sock"},
		"docker":   {"docker.sock", "/nowhere/bin"},
		"embedded": {"PGADVISORY_TEST_SHA256", "/nowhere/bin"},
	} {
		vars["PGADVISORY_TEST_SERVER"] = kind
		_, err := with(vars).any(context.Background())
		if err == nil || !strings.Contains(err.Error(), want.has) || strings.Contains(err.Error(), want.lacks) {
			t.Errorf("%s: %v", kind, err)
		}
	}

	vars["PGADVISORY_TEST_SERVER"] = "embedded"
	if _, err := with(vars).throwaway(context.Background(), Options{BinDir: "/some/bin"}); err != errExcluded {
		t.Errorf("a folder of programs, where an embedded server is forced: %v", err)
	}
	vars["PGADVISORY_TEST_SERVER"] = "docker"
	for _, o := range []Options{{Netns: "elsewhere"}, {BinDir: "/some/bin"}, {Settings: []string{"listen_addresses="}}, {Settings: []string{"port=1"}}} {
		if _, err := with(vars).throwaway(context.Background(), o); err != errExcluded {
			t.Errorf("%+v, where Docker is forced: %v", o, err)
		}
	}
}

func TestMisspeltFolderIsToldAtOnce(t *testing.T) {
	m := with(map[string]string{"PGADVISORY_TEST_BINDIR": "/nowhere/bin"})
	for _, o := range []Options{{}, {BinDir: "/nowhere/bin"}} {
		if _, err := m.throwaway(context.Background(), o); err == nil || err.Error() != "pgtest: /nowhere/bin does not hold initdb and postgres" {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestProgramThatCannotStartSaysWhy(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"initdb", "postgres"} {
		write(t, filepath.Join(dir, name), "#!/bin/sh\necho no libstdc++ here >&2; exit 127")
	}
	_, err := with(map[string]string{"PGADVISORY_TEST_BINDIR": dir}).throwaway(context.Background(), Options{})
	if err == nil || !strings.Contains(err.Error(), "no libstdc++ here") || !strings.Contains(err.Error(), dir) {
		t.Error(err)
	}
}

func TestWhereProgramsAreFound(t *testing.T) {
	root := t.TempDir()
	programs := func(dir string) string {
		dir = filepath.Join(root, dir)
		for _, name := range []string{"initdb", "postgres"} {
			write(t, filepath.Join(dir, name), "")
		}
		return dir
	}
	old, recent, other := programs("9.6/bin"), programs("17/bin"), programs("other")
	write(t, filepath.Join(root, "18/bin/psql"), "") // a client alone
	write(t, filepath.Join(root, "config/pg_config"), "#!/bin/sh\necho "+old)
	write(t, filepath.Join(root, "stale/pg_config"), "#!/bin/sh\necho /nowhere/bin")
	path := func(dirs ...string) string {
		for i := range dirs {
			dirs[i] = filepath.Join(root, dirs[i])
		}
		return strings.Join(dirs, string(os.PathListSeparator))
	}

	for name, c := range map[string]struct{ wanted, path, want string }{
		"usual folders, newest": {path: path("18/bin"), want: recent},
		"PATH first":            {path: path("config", "other"), want: other},
		"pg_config next":        {path: path("stale", "config"), want: old},
		"the wanted one":        {wanted: old, path: path("other"), want: old},
		"wanted, but misspelt":  {wanted: filepath.Join(root, "18/bin"), path: path("other")},
	} {
		m := with(map[string]string{"PATH": c.path})
		m.folders = []string{filepath.Join(root, "*/bin")}
		if got, err := m.bindir(c.wanted); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
		}
	}
}

func TestVersionInFolder(t *testing.T) {
	for dir, want := range map[string]int{
		"/usr/lib/postgresql/15/bin":          15,
		"/usr/pgsql-9.6/bin":                  9,
		"/opt/homebrew/opt/postgresql@18/bin": 18,
		"/usr/local/pgsql/bin":                0,
	} {
		if got := versionIn(dir); got != want {
			t.Errorf("%s: %d, want %d", dir, got, want)
		}
	}
}

func TestMalformedSetting(t *testing.T) {
	for _, line := range []string{"fsync", "=on", ""} {
		if _, err := parseSettings([]string{line}); err == nil {
			t.Errorf("%q is a setting", line)
		}
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

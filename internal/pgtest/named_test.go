package pgtest

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// with is a machine whose environment is vars, and nothing more.
func with(vars map[string]string) machine {
	return machine{getenv: func(name string) string { return vars[name] }}
}

func TestOnlyDatabasesOfOursOnTheUsersServer(t *testing.T) {
	Slow(t)
	theirs := NewServer(t)
	u, err := url.Parse(theirs.URL())
	if err != nil {
		t.Fatal(err)
	}
	admin := open1(t, theirs.URL())
	for _, statement := range []string{
		"CREATE ROLE developer LOGIN CREATEDB PASSWORD 'secret'",
		"CREATE DATABASE shop OWNER developer",
	} {
		if _, err := admin.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	u.User, u.Path, u.RawQuery = url.UserPassword("developer", "secret"), "/shop", ""
	before := databases(t, theirs)

	s, err := with(map[string]string{"DATABASE_URL": u.String()}).any(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if s.Kind() != "url" || s.Addr() != theirs.Addr() || s.Version() != theirs.Version() || s.Log() != "" || s.SocketURL() != "" {
		t.Errorf("kind %s at %s of version %d, socket %s, log %s", s.Kind(), s.Addr(), s.Version(), s.SocketURL(), s.Log())
	}
	t.Run("a test", func(t *testing.T) {
		db := open1(t, s.Database(t))
		if name := nameOf(t, db); !strings.HasPrefix(name, "pgadvisory_test_") {
			t.Errorf("a database named %s", name)
		}
	})
	left, _, err := s.CreateDatabase(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if err := open1(t, left).Ping(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func() error{
		"Stop":  func() error { return s.Stop("fast") },
		"Crash": s.Crash, "Start": s.Start, "Restart": s.Restart, "Pause": s.Pause, "Resume": s.Resume,
	} {
		if err := change(); err == nil {
			t.Errorf("%s of the user's server", name)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}

	if after := databases(t, theirs); !slices.Equal(after, before) {
		t.Errorf("databases %v, before %v", after, before)
	}
}

func TestURLFromVariables(t *testing.T) {
	for _, c := range []struct {
		vars map[string]string
		want string
	}{
		{map[string]string{"DATABASE_URL": "postgres://u:p@h:1/d?sslmode=disable"}, "postgres://u:p@h:1/d?sslmode=disable"},
		{map[string]string{"DATABASE_URL": "postgresql://h?sslmode=verify-full"}, "postgresql://h/postgres?sslmode=verify-full"},
		{map[string]string{"DATABASE_URL": "postgres://h/d", "PGHOST": "other", "PGSSLMODE": "verify-ca"}, "postgres://h/d?sslmode=verify-ca"},
		{map[string]string{"PGHOST": "h"}, "postgres://h:5432/postgres?sslmode=require"},
		{
			map[string]string{"PGHOST": "h", "PGPORT": "1", "PGUSER": "u", "PGPASSWORD": "p/?", "PGDATABASE": "d", "PGSSLMODE": "prefer"},
			"postgres://u:p%2F%3F@h:1/d?sslmode=require",
		},
		{map[string]string{"PGHOST": "/run/pg", "PGUSER": "u"}, "postgres://u@/postgres?host=%2Frun%2Fpg&port=5432&sslmode=require"},
	} {
		m := with(c.vars)
		if !m.names() {
			t.Errorf("%v names no server", c.vars)
			continue
		}
		u, _, err := m.namedURL()
		if err != nil {
			t.Errorf("%v: %v", c.vars, err)
			continue
		}
		if m.sslmode(u); u.String() != c.want {
			t.Errorf("%v: %s, want %s", c.vars, u, c.want)
		}
	}
	if m := with(map[string]string{"PGUSER": "u", "PGDATABASE": "d"}); m.names() {
		t.Error("PGUSER and PGDATABASE name a server")
	}
}

func TestUnusableURL(t *testing.T) {
	for vars, want := range map[[2]string]string{
		{"DATABASE_URL", "host=h user=u"}:                     "does not begin with postgres://",
		{"DATABASE_URL", "mysql://u:secret@h/d"}:              "does not begin with postgres://",
		{"DATABASE_URL", "postgres://u:secret@h:port/d"}:      "DATABASE_URL is no URL",
		{"DATABASE_URL", "postgres://u:secret/x@h/d"}:         "escape every special character",
		{"DATABASE_URL", "postgres://u:secret@127.0.0.1:1/d"}: "postgres://u:xxxxx@127.0.0.1:1/d",
		{"PGSERVICE", "mine"}:                                 "PGSERVICE",
		{"PGADVISORY_TEST_SERVER", "url"}:                     "neither DATABASE_URL nor PGHOST",
		{"PGADVISORY_TEST_SERVER", "cloud"}:                   "url, binaries, docker or embedded",
	} {
		_, err := with(map[string]string{vars[0]: vars[1]}).any(context.Background())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", vars, err, want)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%v: the error has the password: %v", vars, err)
		}
	}
}

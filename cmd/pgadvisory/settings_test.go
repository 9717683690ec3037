package main

import (
	"maps"
	"strings"
	"testing"
)

func TestParseSettings(t *testing.T) {
	for _, test := range []struct {
		d    string
		want settings
	}{
		{"", settings{}},
		{"app", settings{"dbname": "app"}},
		{"postgres://u:p%2F%23@db1:5433/app?sslmode=disable", settings{"user": "u", "password": "p/#", "host": "db1", "port": "5433", "dbname": "app", "sslmode": "disable"}},
		{"postgresql://db1", settings{"host": "db1"}},
		{"postgres://[::1]/app", settings{"host": "::1", "dbname": "app"}},
		{"postgres://[::1]:5433", settings{"host": "::1", "port": "5433"}},
		{"postgres:///app?host=/run/pg", settings{"dbname": "app", "host": "/run/pg"}},
		{"postgres://u@db1,db2/app", settings{"user": "u", "host": "db1,db2", "dbname": "app"}},
		{"postgres://u:a%2Cb@db1:5433,db2,[::1]:5434/app?target_session_attrs=primary", settings{"user": "u", "password": "a,b", "host": "db1,db2,::1", "port": "5433,5432,5434", "dbname": "app", "target_session_attrs": "primary"}},
		{"postgres://%2Fvar%2Frun%2Fpostgresql:5433/app", settings{"host": "/var/run/postgresql", "port": "5433", "dbname": "app"}},
		{"postgres://:5433/app", settings{"port": "5433", "dbname": "app"}},
		{"postgres://db1/app?ssl=true", settings{"host": "db1", "dbname": "app", "sslmode": "require"}},
		{"service=billing", settings{"service": "billing"}},
		{"postgres:///?service=billing", settings{"service": "billing"}},
		{"host=db1  dbname = app", settings{"host": "db1", "dbname": "app"}},
		{`password='it\'s a \\ secret' user=a\ b`, settings{"password": `it's a \ secret`, "user": "a b"}},
		{"host=db password=a://b", settings{"host": "db", "password": "a://b"}},
		{"password= user=u", settings{"password": "user=u"}}, // as libpq reads it
	} {
		got, err := parseSettings(test.d)
		if err != nil || !maps.Equal(got, test.want) {
			t.Errorf("%q: %q, %v; want %q", test.d, map[string]string(got), err, map[string]string(test.want))
		}
		again, err := parseSettings(got.String())
		if len(got) > 0 && (err != nil || !maps.Equal(got, again)) {
			t.Errorf("%q, written and read again: %q, %v", test.d, map[string]string(again), err)
		}
	}
}

// Whatever is wrong with a URL, no error quotes what may be a part of the password.
func TestNoErrorTellsAPassword(t *testing.T) {
	for _, d := range []string{
		"postgres://u:s3c/ret@db/app", "postgres://u:s3c#ret@db/app", "postgres://u:s3c?ret@db/app", "postgres://u:12#s3cret@db/app",
		"postgres://u:s3c,ret/x@db/app", "postgres://u:s3c%ret@db/app", "postgres://u:s3c ret@db/app", "postgres://u:12/s3cret@db/app", "postgres://u:12?s3cret@db/app",
		"postgres://u:s3cret@db:port/app", "postgres://u:s3cret@[::1/app", "postgres://u:s3cret@db/app?%zz", "postgres://u:s3cret@db/app?S3CRET=1",
		"postgres://u:s3cret@db1,db2:ret/app", "postgres://u:s3cret@,db2/app", "postgres://u:s3cret@db1,/app", "postgres://u:s3cret@a:1:2/app",
		"mysql://u:s3cret@db/app", "host=db password='s3cret", "host=db password=x s3cret", "s3cret ret=1",
	} {
		s, err := parseSettings(d)
		if err == nil {
			t.Errorf("%q: no error, but %q", d, map[string]string(s))
			continue
		}
		if code, text := explain(err); code != exitUsage || strings.Contains(strings.ToLower(text), "s3c") || strings.Contains(text, "ret@") {
			t.Errorf("%q: exit code %d: %s", d, code, text)
		}
	}
	s, err := parseSettings("postgres://u:s3cret@db/app")
	if err != nil {
		t.Fatal(err)
	}
	if where := s.where(); strings.Contains(where, "s3cret") {
		t.Error(where)
	}
}

func TestOldServersAreRefused(t *testing.T) {
	err := newEnough(110022, "11.22")
	if err == nil {
		t.Fatal("no error")
	}
	if code, text := explain(err); code != exitUnavailable || !strings.Contains(text, "PostgreSQL 11.22") {
		t.Errorf("exit code %d: %s", code, text)
	}
	if err := newEnough(120000, "12.0"); err != nil {
		t.Error(err)
	}
}

// In the first message of the protocol a NUL ends a value, and what follows is another setting.
func TestSettingsWithNUL(t *testing.T) {
	s, err := parseSettings("postgres://u@db/app?application_name=x%00options%00-csearch_path=evil")
	if err == nil {
		err = s.check()
	}
	if err == nil {
		t.Fatal("no error")
	}
	if code, text := explain(err); code != exitUsage || !strings.Contains(text, "NUL") {
		t.Errorf("exit code %d: %s", code, text)
	}
}

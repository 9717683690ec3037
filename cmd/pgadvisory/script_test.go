package main

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/inspect"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// Scripts say what each subcommand does, as a user sees it. They have a database of their
// own in DATABASE_URL, and these commands:
//
//	held KEY    waits until somebody holds the key
//	free KEY    waits until nobody does
//	sql TEXT    runs a statement
//	pid KEY     sets PID to that of the holder's server process
//
// IDLE is the pid of a session that has no lock.
func TestScripts(t *testing.T) {
	server := pgtest.SharedServer(t)
	program, err := built()
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			u, drop, err := server.CreateDatabase(context.Background())
			if err != nil {
				return err
			}
			db, err := sql.Open("postgres", u)
			if err != nil {
				return err
			}
			e.Defer(func() {
				db.Close()
				if err := drop(context.Background()); err != nil {
					e.T().Fatal(err)
				}
			})
			e.Values["db"] = db
			e.Setenv("PATH", filepath.Dir(program)+string(filepath.ListSeparator)+e.Getenv("PATH"))
			e.Setenv("DATABASE_URL", u)
			parsed, err := url.Parse(u)
			if err != nil {
				return err
			}
			e.Setenv("DATABASE", strings.TrimPrefix(parsed.Path, "/"))
			e.Setenv("HOSTPORT", parsed.Host)
			e.Setenv("DBUSER", parsed.User.Username())
			var idle int
			db.SetMaxOpenConns(5)
			if err := db.QueryRow("SELECT pg_backend_pid()").Scan(&idle); err != nil {
				return err
			}
			e.Setenv("IDLE", fmt.Sprint(idle))
			password, _ := parsed.User.Password()
			e.Setenv("DBPASSWORD", password)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"held": func(ts *testscript.TestScript, _ bool, args []string) {
				untilScript(ts, args[0]+" is held", func(hs []advisory.Holder) bool { return len(hs) > 0 }, args[0])
			},
			"free": func(ts *testscript.TestScript, _ bool, args []string) {
				untilScript(ts, args[0]+" is free", func(hs []advisory.Holder) bool { return len(hs) == 0 }, args[0])
			},
			"pid": func(ts *testscript.TestScript, _ bool, args []string) {
				untilScript(ts, args[0]+" is held", func(hs []advisory.Holder) bool {
					if len(hs) > 0 {
						ts.Setenv("PID", fmt.Sprint(hs[0].PID))
					}
					return len(hs) > 0
				}, args[0])
			},
			"sql": func(ts *testscript.TestScript, _ bool, args []string) {
				if _, err := ts.Value("db").(*sql.DB).Exec(strings.Join(args, " ")); err != nil {
					ts.Fatalf("%v", err)
				}
			},
		},
	})
}

const patience = 20 * time.Second

func untilScript(ts *testscript.TestScript, what string, is func([]advisory.Holder) bool, text string) {
	key, err := advisory.ParseKey(text)
	ts.Check(err)
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		holders, err := inspect.Holders(context.Background(), ts.Value("db").(*sql.DB), key)
		ts.Check(err)
		if is(holders) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func TestEveryScriptIsOfASubcommand(t *testing.T) {
	names, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	if len(names) == 0 {
		t.Error("there are no scripts")
	}
	for _, name := range names {
		about, _, _ := strings.Cut(strings.TrimSuffix(filepath.Base(name), ".txtar"), "-")
		if commandNamed(about) == nil && topics[about] == "" {
			t.Errorf("%s: there is neither a subcommand nor a topic %q", name, about)
		}
	}
}

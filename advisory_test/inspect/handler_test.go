package inspect_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/inspect"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// answer asks the handler, as a server would.
func answer(t testing.TB, h http.Handler, method, target string) (*http.Response, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, target, nil))
	r := w.Result()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r, string(body)
}

// answerInTime asks again where the machine was too slow for the handler's time limit.
func answerInTime(t testing.TB, h http.Handler, target string) (r *http.Response, body string) {
	t.Helper()
	harness.Eventually(t, "an answer in time", func() bool {
		r, body = answer(t, h, "GET", target)
		return r.StatusCode != http.StatusServiceUnavailable
	})
	return r, body
}

// snapshotJSON is what ?format=json has.
type snapshotJSON struct {
	Database   string `json:"database"`
	InRecovery bool   `json:"in_recovery"`
	Locks      []struct {
		Key         advisory.Key `json:"key"`
		Mode        string       `json:"mode"`
		Granted     bool         `json:"granted"`
		PID         int          `json:"pid"`
		Application string       `json:"application"`
		WaitsFor    []int        `json:"waits_for"`
	} `json:"locks"`
	Foreign  int `json:"foreign"`
	Suspects []struct {
		Kind string `json:"kind"`
	} `json:"suspects"`
}

func answerJSON(t testing.TB, h http.Handler) (s snapshotJSON) {
	t.Helper()
	r, body := answerInTime(t, h, "/?format=json")
	if r.StatusCode != 200 || r.Header.Get("Content-Type") != "application/json" {
		t.Fatal(r.Status, r.Header)
	}
	if err := json.Unmarshal([]byte(body), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

const hostile = `<script>alert(1)</script>`

func TestHandlerShowsHoldersAndWaiters(t *testing.T) {
	t.Parallel()
	harness.EachDriver(t, func(t *testing.T, p *harness.Pool) {
		h := inspect.Handler(p)
		_, body := answer(t, h, "GET", "/")
		for _, part := range []string{"Nobody waits.", "No advisory lock is held in this database."} {
			if !strings.Contains(body, part) {
				t.Errorf("with no lock: no %q", part)
			}
		}
		if s := answerJSON(t, h); s.Locks == nil || s.Suspects == nil || len(s.Locks) != 0 {
			t.Errorf("with no lock: %+v", s)
		}

		theirs := harness.Drivers[0].Open(t, as(t, p.Url, nil, hostile))
		holder := theirs.NewConn(t)
		harness.TryLock(t, holder, advisory.Pair(-1, 7))
		_, body = answer(t, h, "GET", "/")
		if !strings.Contains(body, "-1:7") || !strings.Contains(body, "Nobody waits.") {
			t.Error("with one lock:", body)
		}
		holding := harness.Ask[int](t, holder, "SELECT pg_backend_pid()")
		waiting := blockOn(t, theirs, advisory.Pair(-1, 7), advisory.Shared)
		r, body := answer(t, h, "GET", "/")
		for _, part := range []string{
			fmt.Sprint("pid ", holding), fmt.Sprint("pid ", waiting), "&lt;script&gt;alert(1)&lt;/script&gt;",
			fmt.Sprintf(`data-waiter="%d" data-blocker="%d"`, waiting, holding),
		} {
			if !strings.Contains(body, part) {
				t.Errorf("no %q in:\n%s", part, body)
			}
		}
		for _, part := range []string{"<script", "pg_advisory_lock_shared(", "http://", " style="} {
			if strings.Contains(strings.ReplaceAll(body, "http://www.w3.org/2000/svg", ""), part) {
				t.Errorf("%q is in:\n%s", part, body)
			}
		}
		if r.Header.Get("Cache-Control") != "no-store" || !strings.HasPrefix(r.Header.Get("Content-Security-Policy"), "default-src 'none'; ") {
			t.Error(r.Header)
		}
		s := answerJSON(t, h)
		if len(s.Locks) != 2 || s.Locks[0].PID != holding || s.Locks[0].Application != hostile || s.Locks[0].Mode != "exclusive" ||
			s.Locks[1].Granted || s.Locks[1].Mode != "shared" || len(s.Locks[1].WaitsFor) != 1 || s.Locks[1].WaitsFor[0] != holding {
			t.Errorf("%+v", s)
		}
	})
}

func TestHandlerIsReadOnly(t *testing.T) {
	t.Parallel()
	h := inspect.Handler(harness.Drivers[0].Open(t, pgtest.URL(t)))
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS"} {
		if r, _ := answer(t, h, method, "/"); r.StatusCode != http.StatusMethodNotAllowed || r.Header.Get("Allow") != "GET, HEAD" {
			t.Error(method, r.Status, r.Header)
		}
	}
	server := httptest.NewServer(h)
	defer server.Close()
	r, err := http.Head(server.URL)
	if err != nil || r.StatusCode != 200 {
		t.Error(r, err)
	}
	if r, _ := answer(t, h, "GET", "/?format=xml"); r.StatusCode != http.StatusBadRequest {
		t.Error(r.Status)
	}
	if _, body := answer(t, h, "GET", "/?refresh=5"); !strings.Contains(body, `http-equiv="refresh" content="5"`) {
		t.Error("no refresh")
	}
	if _, body := answer(t, h, "GET", "/?refresh=-1"); strings.Contains(body, `http-equiv="refresh"`) {
		t.Error("a refresh")
	}
}

// A statement may have a secret in it.
func TestHandlerShowsNoStatement(t *testing.T) {
	t.Parallel()
	p := harness.Drivers[0].Open(t, pgtest.URL(t))
	conn := p.NewConn(t)
	harness.DoSQL(t, conn, "SELECT pg_advisory_lock(1), 'secret'")
	h := inspect.Handler(p)
	for _, target := range []string{"/", "/?format=json"} {
		if _, body := answer(t, h, "GET", target); strings.Contains(body, "secret") || !strings.Contains(body, "idle") {
			t.Errorf("%s: %s", target, body)
		}
	}
}

// Who keeps thousands of locks does not get a page of megabytes, but is told.
func TestHandlerOfManyLocks(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	server := pgtest.NewServer(t, "max_locks_per_transaction=200", "max_connections=150")
	p := harness.Drivers[0].Open(t, server.Database(t))
	harness.DoSQL(t, p.NewConn(t), "SELECT count(pg_advisory_lock(i)) FROM generate_series(1, 10000) i")
	ctx, end := context.WithCancel(t.Context())
	defer end()
	for range 100 {
		go p.ExecContext(ctx, "SELECT pg_advisory_lock(5000)")
	}
	harness.Eventually(t, "all wait", func() bool { _, waiting := p.Locks(t); return waiting == 100 })
	h := inspect.Handler(p)
	_, body := answerInTime(t, h, "/")
	for _, part := range []string{"<b>10000</b> held", "<b>100</b> waiting", "9800 more are left out", "88 more sessions are left out"} {
		if !strings.Contains(body, part) {
			t.Errorf("no %q", part)
		}
	}
	if n := strings.Count(body, "data-waiter"); n != 12 {
		t.Errorf("%d arrows", n)
	}
	if len(body) > 400<<10 {
		t.Errorf("%d bytes", len(body))
	}
	if held := strings.Index(body, `id="holders"`); !strings.Contains(body[held:held+2000], ">5000<") {
		t.Error("the lock that all wait for does not come first")
	}
	if s := answerJSON(t, h); len(s.Locks) != 10100 {
		t.Error(len(s.Locks))
	}
}

// A database that cannot be reached, or hangs, is told in time, without its password.
func TestHandlerWithoutItsDatabase(t *testing.T) {
	pgtest.Slow(t)
	t.Parallel()
	harness.AtOnce(t, func(all *harness.Together) {
		for _, d := range harness.Drivers[:2] {
			all.Start("gone/"+d.Name, func(t *testing.T) {
				db, err := sql.Open(d.Sql, "postgres://someone:pa55word@127.0.0.1:1/x?sslmode=disable")
				if err != nil {
					t.Fatal(err)
				}
				defer db.Close()
				unavailable(t, inspect.Handler(db))
			})
			all.Start("hangs/"+d.Name, func(t *testing.T) {
				server := pgtest.NewServer(t)
				p := d.Open(t, server.Database(t))
				h := inspect.Handler(p)
				answerJSON(t, h)
				if err := server.Pause(); err != nil {
					t.Fatal(err)
				}
				for range 2 { // the second finds the first at it, or gone
					start := time.Now()
					unavailable(t, h)
					if d := time.Since(start); d > 6*time.Second+harness.Slack {
						t.Errorf("after %v", d)
					}
				}
				if err := server.Resume(); err != nil {
					t.Fatal(err)
				}
				harness.Eventually(t, "it answers again", func() bool {
					r, _ := answer(t, h, "GET", "/")
					return r.StatusCode == 200
				})
			})
		}
	})
}

func unavailable(t *testing.T, h http.Handler) {
	t.Helper()
	r, body := answer(t, h, "GET", "/")
	if r.StatusCode != http.StatusServiceUnavailable || !strings.HasPrefix(body, "The database ") || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/plain") {
		t.Error(r.Status, r.Header, body)
	}
	if strings.Contains(body, "pa55word") || strings.Contains(body, "someone") {
		t.Error(body)
	}
}

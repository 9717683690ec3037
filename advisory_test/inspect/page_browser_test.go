package inspect_test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
	"github.com/pgadvisory/pgadvisory/inspect"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// The page, as a browser has it: with all that is held and waited for, without a
// complaint, and without asking anybody for anything.
func TestPageInABrowser(t *testing.T) {
	pgtest.Slow(t)
	p := harness.Drivers[0].Open(t, pgtest.URL(t))
	mux := http.NewServeMux()
	mux.Handle("/locks", inspect.Handler(p))
	mux.HandleFunc("/bad", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; img-src *")
		fmt.Fprint(w, `<!DOCTYPE html><script>alert(1)</script><img src="http://elsewhere.test/x.png">`)
	})
	b := newBrowser(t, mux)

	// What this test looks for can be seen.
	if bad := b.see(t, "/bad"); len(bad.console) == 0 || !slices.Contains(bad.elsewhere, "GET http://elsewhere.test/x.png elsewhere.test") {
		t.Fatalf("a bad page looks good: %+v", bad)
	}

	// In an empty database: what a browser asks of its own accord.
	empty := b.see(t, "/locks")
	if !strings.Contains(empty.dom, "Nobody waits.") || len(empty.console) != 0 || len(empty.elsewhere) != 0 {
		t.Errorf("%+v", empty)
	}

	theirs := harness.Drivers[0].Open(t, as(t, p.Url, nil, hostile))
	holder := theirs.NewConn(t)
	pid := harness.Ask[int](t, holder, "SELECT pg_backend_pid()")
	harness.TryLock(t, holder, advisory.Int64(-4820))
	harness.TryLock(t, holder, advisory.Pair(7, -1))
	writer := blockOn(t, theirs, advisory.Int64(-4820), advisory.Exclusive)
	reader := blockOn(t, theirs, advisory.Pair(7, -1), advisory.Shared)

	page := b.see(t, "/locks")
	if len(page.console) != 0 {
		t.Errorf("complaints: %q", page.console)
	}
	if len(page.elsewhere) != 0 || !slices.Equal(page.asked, []string{"GET /locks"}) {
		t.Errorf("asked for %q and, elsewhere, %q", page.asked, page.elsewhere)
	}
	for _, part := range []string{
		fmt.Sprintf(`data-waiter="%d" data-blocker="%d"`, writer, pid),
		fmt.Sprintf(`data-waiter="%d" data-blocker="%d"`, reader, pid),
		fmt.Sprintf(">pid %d</td>", pid), fmt.Sprintf(">pid %d</td>", writer), fmt.Sprintf(">pid %d</td>", reader),
		">-4820</td>", ">7:-1</td>", "<bdi>&lt;script&gt;alert(1)&lt;/script&gt;</bdi>", "waits for -4820",
	} {
		if !strings.Contains(page.dom, part) {
			t.Errorf("no %q", part)
		}
	}
	if strings.Contains(page.dom, "<script") {
		t.Error("a script")
	}
	if t.Failed() {
		t.Log(page.dom)
	}
}

// Pictures of the page, for those who change it and for the documentation:
//
//	PGADVISORY_PICTURES=folder go test -run Pictures ./advisory_test/inspect
func TestPagePictures(t *testing.T) {
	dir := os.Getenv("PGADVISORY_PICTURES")
	if dir == "" {
		t.Skip("makes pictures where PGADVISORY_PICTURES names a folder for them")
	}
	server := pgtest.NewServer(t, "max_prepared_transactions=5", "max_locks_per_transaction=200", "max_connections=200")
	admin := harness.Drivers[0].Open(t, server.URL())
	harness.DoSQL(t, admin, "CREATE DATABASE bank")
	u := mustURL(t, server.URL())
	u.Path = "/bank"
	admin = harness.Drivers[0].Open(t, u.String())
	session := func(role, application string) *harness.Pool {
		if !harness.Ask[bool](t, admin, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", role) {
			harness.DoSQL(t, admin, "CREATE ROLE "+role+" LOGIN PASSWORD 'word'")
		}
		return harness.Drivers[0].Open(t, as(t, u.String(), url.UserPassword(role, "word"), application))
	}
	b := newBrowser(t, inspect.Handler(admin))
	take := func(name, path string, width, height int, more ...string) {
		b.see(t, path, append(more, "--hide-scrollbars", "--screenshot="+filepath.Join(dir, name+".png"), fmt.Sprintf("--window-size=%d,%d", width, height))...)
	}
	dark := "--blink-settings=preferredColorScheme=0"
	take("empty", "/", 1000, 500)

	// A Locker of a service with its accounts, a pool's connection that came back with its
	// locks, and a night's batch that other nodes wait for.
	locker := session("billing", "billing-worker").Locker(t)
	for i := range 12 {
		harness.LockerTry(t, locker, advisory.Name("account", strconv.Itoa(i)))
	}
	web := session("web", "web-frontend")
	leaky := web.NewConn(t)
	harness.DoSQL(t, leaky, "SELECT pg_advisory_lock(7, 12), pg_advisory_lock(7, 13)")
	blockOn(t, session("web", "web-frontend"), advisory.Pair(7, 12), advisory.Exclusive)
	time.Sleep(40 * time.Second) // so that it alone is a suspect
	batch := session("batch", "nightly-batch")
	runs := batch.NewConn(t)
	harness.TryLock(t, runs, advisory.Int64(4820))
	go runs.ExecContext(t.Context(), "SELECT pg_sleep(60)")
	blockOn(t, session("batch", "nightly-batch"), advisory.Int64(4820), advisory.Exclusive)
	blockOn(t, session("reports", "reporting"), advisory.Int64(4820), advisory.Shared)
	// It waits for the leak, and somebody for it.
	waits := session("batch", "month-end").NewConn(t)
	harness.TryLock(t, waits, advisory.Int64(99))
	go waits.ExecContext(t.Context(), "SELECT pg_advisory_lock(7, 13)")
	blockOn(t, session("batch", "year-end"), advisory.Int64(99), advisory.Exclusive)
	take("inspect", "/?after=45s", 1000, 1180)
	for _, scheme := range []string{"light", "dark"} {
		var more []string
		if scheme == "dark" {
			more = append(more, dark)
		}
		take("page-"+scheme, "/?after=3s", 1100, 1250, more...)
		take("narrow-"+scheme, "/?after=3s", 400, 2600, more...)
	}

	// A circle, a prepared transaction, and more than can be drawn.
	harness.DoSQL(t, admin, "ALTER SYSTEM SET deadlock_timeout = '1h'")
	harness.DoSQL(t, admin, "SELECT pg_reload_conf()")
	time.Sleep(500 * time.Millisecond)
	one, two := session("batch", "one").NewConn(t), session("batch", "two").NewConn(t)
	harness.TryLock(t, one, advisory.Int64(1))
	harness.TryLock(t, two, advisory.Int64(2))
	go one.ExecContext(t.Context(), "SELECT pg_advisory_lock(2)")
	go two.ExecContext(t.Context(), "SELECT pg_advisory_lock(1)")
	prepares := admin.NewConn(t)
	harness.DoSQL(t, prepares, "BEGIN")
	harness.DoSQL(t, prepares, "SELECT pg_advisory_xact_lock(3)")
	harness.DoSQL(t, prepares, "PREPARE TRANSACTION 'transfer 4711'")
	blockOn(t, session("web", hostile), advisory.Int64(3), advisory.Exclusive)
	take("circle", "/?after=3s", 1100, 1600)
	many := session("batch", "many")
	harness.DoSQL(t, many.NewConn(t), "SELECT count(pg_advisory_lock_shared(i)) FROM generate_series(10000, 20000) i")
	for range 80 {
		go many.ExecContext(t.Context(), "SELECT pg_advisory_lock(12000)")
	}
	time.Sleep(2 * time.Second)
	take("many", "/", 1100, 2400)
	unprivileged := session("reports", "reports")
	b.site = inspect.Handler(unprivileged)
	take("unprivileged", "/", 1100, 1200)
	harness.DoSQL(t, admin, "ROLLBACK PREPARED 'transfer 4711'")
}

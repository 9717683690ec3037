package pgtest

import (
	"context"
	"database/sql"
	"net"
	"net/url"
	"os"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lib/pq"
)

func TestEachTestHasADatabaseOfItsOwn(t *testing.T) {
	Slow(t)
	var urls []string
	for range 2 {
		t.Run("a test", func(t *testing.T) {
			db := open1(t, URL(t))
			if _, err := db.Exec("CREATE TABLE theirs ()"); err != nil {
				t.Error(err)
			}
			urls = append(urls, nameOf(t, db))
		})
	}
	if urls[0] == urls[1] {
		t.Errorf("both have %s", urls[0])
	}
	left := databases(t, SharedServer(t))
	for _, name := range urls {
		if slices.Contains(left, name) {
			t.Errorf("%s has not been dropped, though somebody was connected", name)
		}
	}
}

func TestSharedServerIsOne(t *testing.T) {
	if a, b := SharedServer(t), SharedServer(t); a != b {
		t.Errorf("%s and %s", a.Addr(), b.Addr())
	}
}

func TestServersAreApart(t *testing.T) {
	Slow(t)
	a, b := NewServer(t, "max_connections=17"), NewServer(t, "application_name='it''s b'", "fsync=on")
	if a.Addr() == b.Addr() {
		t.Fatalf("both at %s", a.Addr())
	}
	for _, c := range []struct {
		s           *Server
		name, value string
	}{
		{a, "max_connections", "17"},
		{a, "fsync", "off"},
		{b, "max_connections", "100"},
		{b, "fsync", "on"},
		{b, "application_name", "it's b"},
	} {
		if got := ask[string](t, c.s.URL(), "SHOW "+c.name); got != c.value {
			t.Errorf("%s: %s is %q, want %q", c.s.Addr(), c.name, got, c.value)
		}
	}
	if got := ask[int](t, a.URL(), "SELECT current_setting('server_version_num')::int"); got != a.Version() {
		t.Errorf("Version is %d, the server says %d", a.Version(), got)
	}
}

func TestServerComesBackWithItsData(t *testing.T) {
	Slow(t)
	s := NewServer(t)
	u := s.Database(t)
	db := open1(t, u)
	if _, err := db.Exec("CREATE TABLE kept (n int)"); err != nil {
		t.Fatal(err)
	}
	for i, away := range []func() error{
		func() error { return s.Stop("fast") },
		func() error { return s.Stop("immediate") },
		s.Crash,
		func() error { return do(s.Pause, s.Crash) },
		func() error { return do(s.Pause, func() error { return s.Stop("fast") }) },
	} {
		if _, err := db.Exec("INSERT INTO kept VALUES ($1)", i); err != nil {
			t.Fatal(err)
		}
		if err := away(); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		if err := db.Ping(); err == nil {
			t.Errorf("%d: a connection, though the server is away", i)
		}
		if err := s.Start(); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		if got := ask[int](t, u, "SELECT count(*) FROM kept"); got != i+1 {
			t.Errorf("%d: %d rows, want %d", i, got, i+1)
		}
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if got := ask[int](t, u, "SELECT count(*) FROM kept"); got != 5 {
		t.Errorf("%d rows after a restart, want 5", got)
	}
}

func TestPausedServerDoesNotAnswer(t *testing.T) {
	Slow(t)
	s := NewServer(t)
	db := open1(t, s.URL())
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	answer := make(chan error, 1)
	go func() { _, err := db.Exec("SELECT 1"); answer <- err }()
	select {
	case err := <-answer:
		t.Errorf("an answer (%v) of a paused server", err)
	case <-time.After(300 * time.Millisecond):
	}
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := <-answer; err != nil {
		t.Errorf("after the pause: %v", err)
	}
}

func TestStateIsMinded(t *testing.T) {
	Slow(t)
	s := NewServer(t)
	if err := s.Start(); err == nil {
		t.Error("a running server started")
	}
	if err := s.Resume(); err != nil {
		t.Errorf("resuming what is not paused: %v", err)
	}
	if err := s.Stop("gently"); err == nil {
		t.Error("stopped gently, whatever that is")
	}
	s.Database(t) // is not missed, nor dropped, when the server is away
	if err := s.Crash(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func() error{
		"Stop":  func() error { return s.Stop("fast") },
		"Crash": s.Crash, "Restart": s.Restart, "Pause": s.Pause,
	} {
		if err := change(); err == nil {
			t.Errorf("%s of a crashed server is no error", name)
		}
	}
	if err := do(s.Close, s.Close); err != nil {
		t.Error(err)
	}
	if err := s.Start(); err == nil {
		t.Error("a closed server started")
	}
}

func TestLogTellsErrors(t *testing.T) {
	s := NewServer(t)
	db := open1(t, s.Database(t))
	if log := s.Log(); strings.Contains(log, "ERROR:") || strings.Contains(log, "WARNING:") {
		t.Errorf("trouble before there is any:\n%s", log)
	}
	name, pid := nameOf(t, db), ask[string](t, s.URL(), "SELECT pg_backend_pid()")
	if _, err := db.Exec("SELECT 1/0"); err == nil {
		t.Fatal("1/0 is a number")
	}
	var line string
	for _, l := range strings.Split(s.Log(), "\n") {
		if strings.Contains(l, "ERROR:") {
			line = l
		}
	}
	if !strings.Contains(line, " "+name+"/") || !strings.Contains(line, "[") || !strings.HasSuffix(line, "division by zero") {
		t.Errorf("the log says %q of the error in %s (pids are like %s)", line, name, pid)
	}
}

func TestThrowawayServerIsPrivate(t *testing.T) {
	s := NewServer(t)
	_, port, err := net.SplitHostPort(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	ifaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, iface := range ifaces {
		addrs, err := iface.Addrs()
		if err != nil {
			t.Fatal(err)
		}
		for _, addr := range addrs {
			ip := addr.(*net.IPNet).IP
			if ip.IsLoopback() {
				continue
			}
			host := ip.String()
			if ip.To4() == nil && ip.IsLinkLocalUnicast() {
				host += "%" + iface.Name
			}
			if c, err := net.DialTimeout("tcp", net.JoinHostPort(host, port), time.Second); err == nil {
				c.Close()
				t.Errorf("it listens on %s", host)
			}
		}
	}
	if s.SocketURL() != "" {
		u, err := url.Parse(s.SocketURL())
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(u.Query().Get("host"))
		if err != nil {
			t.Fatal(err)
		}
		if !info.IsDir() || info.Mode().Perm() != 0o700 {
			t.Errorf("the socket's folder: %v", info.Mode())
		}
	}

	stranger := strings.Replace(s.URL(), "postgres:", "postgres:not", 2) // scheme and password
	stranger = strings.Replace(stranger, "postgres:not//", "postgres://", 1)
	err = open1(t, stranger).Ping()
	if e, ok := err.(*pq.Error); !ok || e.Code.Name() != "invalid_password" {
		t.Errorf("with a wrong password: %v", err)
	}
}

func TestSocketLeadsToTheSameServer(t *testing.T) {
	s := NewServer(t)
	if s.SocketURL() == "" {
		t.Skipf("a server in %s has no socket here", s.Kind())
	}
	const started = "SELECT pg_postmaster_start_time()::text"
	if a, b := ask[string](t, s.URL(), started), ask[string](t, s.SocketURL(), started); a != b {
		t.Errorf("started at %s and at %s", a, b)
	}
}

func TestRunningServerKeepsNoGoroutine(t *testing.T) {
	s := NewServer(t)
	if err := do(s.Restart, s.Pause, s.Resume); err != nil {
		t.Fatal(err)
	}
	s.Log()
	var stacks strings.Builder
	for range 50 {
		stacks.Reset()
		pprof.Lookup("goroutine").WriteTo(&stacks, 1)
		if !strings.Contains(stacks.String(), "os/exec") && !strings.Contains(stacks.String(), "net/http") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error(stacks.String())
}

// do runs steps up to the first that fails.
func do(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// open1 returns a pool of one connection, made when it is first used.
func open1(t *testing.T, u string) *sql.DB {
	t.Helper()
	db, err := sql.Open("postgres", u)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	return db
}

// ask returns the one value that query asks for.
func ask[T any](t *testing.T, u, query string) (answer T) {
	t.Helper()
	db := open1(t, u)
	defer db.Close()
	if err := db.QueryRowContext(context.Background(), query).Scan(&answer); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return answer
}

func nameOf(t *testing.T, db *sql.DB) (name string) {
	t.Helper()
	if err := db.QueryRow("SELECT current_database()").Scan(&name); err != nil {
		t.Fatal(err)
	}
	return name
}

func databases(t *testing.T, s *Server) []string {
	t.Helper()
	return strings.Split(ask[string](t, s.URL(), "SELECT string_agg(datname, ' ' ORDER BY datname) FROM pg_database"), " ")
}

package pgtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/url"
	"testing"

	"github.com/lib/pq"
)

// Database creates a database and returns its URL. When the test ends, the database is dropped,
// even if clients are still connected.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	u, drop, err := s.CreateDatabase(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := drop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return u
}

// CreateDatabase creates an empty database with a unique name, and returns its URL. drop drops it,
// even if clients are still connected. If a temporary server does not run, drop does nothing,
// because the database goes with the server. Close drops what is left on a server that the user
// named.
func (s *Server) CreateDatabase(ctx context.Context) (url string, drop func(context.Context) error, err error) {
	name := "pgadvisory_test_" + random(6)
	s.mu.Lock()
	if s.databases == nil {
		s.databases = make(map[string]struct{})
	}
	s.databases[name] = struct{}{} // before the answer, which may be lost
	s.mu.Unlock()

	if err := execute(ctx, s.local(), "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		return "", nil, fmt.Errorf("pgtest: creating a database: %w", err)
	}
	return withDatabase(s.url, name), func(ctx context.Context) error { return s.drop(ctx, name) }, nil
}

func (s *Server) drop(ctx context.Context, name string) error {
	s.mu.Lock()
	_, exists := s.databases[name]
	running := s.running && !s.paused
	delete(s.databases, name)
	s.mu.Unlock()
	if !exists || !running {
		return nil
	}

	statements := []string{"DROP DATABASE IF EXISTS " + name + " WITH (FORCE)"}
	if s.version < 130000 {
		statements = []string{
			"ALTER DATABASE " + name + " ALLOW_CONNECTIONS false",
			"SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity WHERE datname = " + pq.QuoteLiteral(name),
			"DROP DATABASE IF EXISTS " + name,
		}
	}
	if err := execute(ctx, s.local(), statements...); err != nil {
		return fmt.Errorf("pgtest: dropping database %s: %w", name, err)
	}
	return nil
}

// local returns a URL that faults of a test on the network do not affect.
func (s *Server) local() *url.URL {
	if s.socketURL != nil {
		return s.socketURL
	}
	return s.url
}

func withDatabase(u *url.URL, name string) string {
	v := *u
	v.Path = "/" + name
	return v.String()
}

// random returns n random bytes in hexadecimal.
func random(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}

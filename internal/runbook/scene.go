// Package runbook stages the incident of docs/runbook.md on a real server, and runs the statements
// and commands of the document in it.
package runbook

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	_ "github.com/lib/pq"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/locker"
)

// A Scene is the incident. An idle session of a pool holds key 4820, two workers wait for it, and
// an index build waits for one of them. A prepared transaction was forgotten. At the same time a
// scheduler uses locks correctly.
type Scene struct {
	URL string // of the database, for an operator

	server *pgtest.Server
	cancel context.CancelFunc
	close  []func()
}

// Set stages the scene, on a server of its own.
func Set(ctx context.Context) (_ *Scene, err error) {
	server, err := pgtest.Start(ctx, "max_prepared_transactions=10")
	if err != nil {
		return nil, err
	}
	s := &Scene{server: server}
	ctx, s.cancel = context.WithCancel(ctx)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	s.URL = server.URL()
	if err := s.admin(ctx, "CREATE DATABASE billing"); err != nil {
		return nil, err
	}
	s.URL = strings.Replace(s.URL, "/postgres?", "/billing?", 1)
	for _, q := range []string{
		"CREATE ROLE app LOGIN PASSWORD 'app'",
		"CREATE TABLE ledger AS SELECT n AS account, 0 AS balance FROM generate_series(1, 1000) n",
		"ALTER TABLE ledger OWNER TO app",
		"GRANT CREATE ON SCHEMA public TO app",
	} {
		if err := s.admin(ctx, q); err != nil {
			return nil, err
		}
	}
	return s, s.play(ctx)
}

// admin runs a statement as a superuser.
func (s *Scene) admin(ctx context.Context, query string) error {
	db, err := sql.Open("postgres", s.URL)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, query); err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	return nil
}

func (s *Scene) play(ctx context.Context) error {
	// The leak: a connection that went back to its pool with its locks.
	web, err := s.open("billing-web", "app")
	if err != nil {
		return err
	}
	web.SetMaxOpenConns(1)
	for _, key := range []string{"4820", "12, 34"} {
		if _, err := web.ExecContext(ctx, "SELECT pg_try_advisory_lock("+key+")"); err != nil {
			return err
		}
	}
	// A prepared transaction whose coordinator is gone.
	settle, err := s.open("settle", "app")
	if err != nil {
		return err
	}
	if _, err := settle.ExecContext(ctx, "BEGIN; SELECT pg_advisory_xact_lock(-77); PREPARE TRANSACTION 'settle-31'"); err != nil {
		return err
	}
	// A correct use of locks.
	scheduler, err := s.open("scheduler", "app")
	if err != nil {
		return err
	}
	l := locker.New(scheduler)
	s.close = append(s.close, func() { l.Close() })
	if _, err := l.Lock(ctx, advisory.Name("billing", "eu")); err != nil {
		return err
	}
	// The sessions that wait.
	for _, v := range []struct{ name, query string }{
		{"reconcile-2", "SELECT pg_advisory_lock(4820)"},
		{"migrate", "CREATE INDEX CONCURRENTLY ledger_balance ON ledger (balance)"},
		{"reconcile-3", "SELECT pg_advisory_lock(4820)"},
	} {
		if err := s.startWaiter(ctx, v.name, v.query); err != nil {
			return err
		}
	}
	time.Sleep(6 * time.Second) // longer than the document's limit for suspects
	return nil
}

// open returns a pool of connections for an application and a role.
func (s *Scene) open(application, user string) (*sql.DB, error) {
	u, err := url.Parse(s.URL)
	if err != nil {
		return nil, err
	}
	if user != "" {
		u.User = url.UserPassword(user, user)
	}
	q := u.Query()
	q.Set("application_name", application)
	u.RawQuery = q.Encode()
	db, err := sql.Open("postgres", u.String())
	if err != nil {
		return nil, err
	}
	s.close = append(s.close, func() { db.Close() })
	return db, nil
}

// startWaiter sends a statement that must wait, and returns when it waits.
func (s *Scene) startWaiter(ctx context.Context, application, query string) error {
	db, err := s.open(application, "app")
	if err != nil {
		return err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	answer := make(chan error, 1)
	go func() {
		_, err := conn.ExecContext(ctx, query)
		answer <- err
		// After its work a worker closes its connection, which releases its lock.
		time.Sleep(100 * time.Millisecond)
		db.Close()
		conn.Close()
	}()
	admin, err := s.open("", "")
	if err != nil {
		return err
	}
	defer admin.Close()
	limit, stop := context.WithTimeout(ctx, 30*time.Second) // limits the loop, not the statement
	defer stop()
	for waits := false; !waits; time.Sleep(20 * time.Millisecond) {
		select {
		case err := <-answer:
			return fmt.Errorf("%s did not wait for %s: %v", application, query, err)
		default:
		}
		if err := admin.QueryRowContext(limit, "SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'", application).Scan(&waits); err != nil {
			return fmt.Errorf("wait until %s waits: %w", application, err)
		}
	}
	return nil
}

// Close ends all sessions of the scene and stops its server.
func (s *Scene) Close() error {
	s.cancel()
	for _, f := range s.close {
		f()
	}
	return s.server.Close()
}

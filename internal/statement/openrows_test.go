package statement

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"

	"github.com/pgadvisory/pgadvisory/internal/drivers"
	"github.com/pgadvisory/pgadvisory/internal/sqlprivate"
)

// refusal is what a driver says to a look while rows are open.
func refusal(kind drivers.Kind) error {
	switch kind {
	case drivers.PGX, drivers.Unknown:
		return driver.ErrBadConn
	case drivers.PQ:
		return errors.New("pq: there is already a query being processed on this connection")
	}
	return errors.New("conn busy")
}

// What a look says is true for the rest of the session.
func TestOneLookComesFirstWhileRowsMayBeOpen(t *testing.T) {
	for name, kind := range kinds {
		s := &server{answers: []answer{ours(1), ours(0)}}
		session := s.withRows(t, kind)
		for want := int64(1); want >= 0; want-- {
			if n, err := session.Exec(try); n != want || err != nil {
				t.Errorf("%s: %d, %v; want %d", name, n, err, want)
			}
		}
		s.got(t, 1, try, try)
	}
}

// The caller may close the rows and call again, on the same connection.
func TestNothingIsSentAfterALookThatFails(t *testing.T) {
	for name, kind := range kinds {
		s := &server{looks: []error{refusal(kind), refusal(kind), nil}, answers: []answer{ours(1)}}
		session := s.withRows(t, kind)
		if n, err := session.Exec(try); n != 0 || !errors.Is(err, ErrBusy) || !errors.Is(err, s.looks[0]) {
			t.Errorf("%s: Exec: %d, %v", name, n, err)
		}
		if err := session.Query(try, nil, func(*sql.Rows) error { return nil }); !errors.Is(err, ErrBusy) {
			t.Errorf("%s: Query: %v", name, err)
		}
		s.got(t, 2)
		if s.closed {
			t.Errorf("%s: the caller's connection was closed", name)
		}
		if n, err := session.Exec(try); n != 1 || err != nil {
			t.Errorf("%s: after the look succeeded: %d, %v", name, n, err)
		}
		s.got(t, 3, try)
	}
}

// A transaction does not show its driver's connection: the look goes through database/sql.
func TestLookInATransaction(t *testing.T) {
	s := &server{answers: []answer{{results: []result{{column: "id", rows: 3}}}}}
	db := sql.OpenDB(s)
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	rows, err := tx.QueryContext(t.Context(), "SELECT id FROM jobs")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	s.answers, s.sent = []answer{ours(1)}, nil
	s.looks = []error{refusal(drivers.PQ), nil}
	session := Given(t.Context(), tx, drivers.PQ)
	if _, err := session.Exec(try); !errors.Is(err, ErrBusy) {
		t.Error(err)
	}
	if n, err := session.Exec(try); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	s.got(t, 2, try)
}

// lib/pq may take what is left of an earlier query for the answer. A look makes it notice that, even
// if the ctx has just ended. Otherwise a statement of the caller's would get what was the library's.
func TestAnswerOfAnotherColumnIsNobodys(t *testing.T) {
	for _, over := range []bool{false, true} {
		left := answer{results: []result{{column: "id", rows: 1}}}
		s := &server{answers: []answer{left, left}}
		session, end := quiet(t, s.given(t, drivers.PQ))
		if over {
			s.answers[0].during = end
		}
		if n, err := session.Exec(try); n != 0 || err != ErrOpenRows || !errors.Is(err, ErrBusy) {
			t.Errorf("Exec, ctx over: %v: %d, %v", over, n, err)
		}
		s.got(t, 1, try)
		called := false
		if err := session.Query(try, nil, func(*sql.Rows) error { called = true; return nil }); err != ErrOpenRows || called {
			t.Errorf("Query, ctx over: %v: %v, row called: %v", over, err, called)
		}
		s.got(t, 2, try, try)
	}
}

func TestDriverNoticesThatItIsOutOfStepAfterTheEndOfCtx(t *testing.T) {
	s := &server{}
	session := s.given(t, drivers.PQ)
	ctx, end := context.WithCancel(t.Context())
	end()
	session.Ctx = ctx
	if err := session.outOfStep(); err != ErrOpenRows {
		t.Error(err)
	}
	s.got(t, 1)
}

func TestWhatADriverSaysWhileRowsAreOpen(t *testing.T) {
	errServer := errors.New("pq: out of shared memory")
	for _, c := range []struct {
		name string
		kind drivers.Kind
		err  error
		rows bool  // are open
		is   error // nil: err itself, with nothing added
	}{
		{"pgx, with rows", drivers.PGX, driver.ErrBadConn, true, ErrBusy},
		{"pgx, without", drivers.PGX, driver.ErrBadConn, false, nil},
		{"pgx, an error of the server", drivers.PGX, errServer, true, nil},
		{"pgx, whose text counts for nothing", drivers.PGX, errors.New("pq: unexpected DataRow"), true, nil},
		{"perhaps pgx, with rows", drivers.Unknown, driver.ErrBadConn, true, ErrBusy},
		{"perhaps pgx, without", drivers.Unknown, driver.ErrBadConn, false, nil},
		{"perhaps lib/pq", drivers.Unknown, errors.New("pq: unexpected DataRow"), true, ErrOpenRows},
		{"pgx below another", drivers.Other, fmt.Errorf("wrapped: %w", errors.New("conn busy")), true, ErrBusy},
		{"another, lost", drivers.Other, driver.ErrBadConn, true, nil},
		{"lib/pq", drivers.PQ, errors.New("pq: unexpected DataRow in simple query execution"), true, ErrOpenRows},
		{"lib/pq, other words", drivers.PQ, errors.New("pq: unknown response for simple query: 'D'"), true, ErrOpenRows},
		{"lib/pq, newer", drivers.PQ, errors.New("pq: there is already a query being processed on this connection"), true, ErrBusy},
		{"lib/pq, lost", drivers.PQ, driver.ErrBadConn, true, nil},
		{"lib/pq, an error of the server", drivers.PQ, errServer, true, nil},
		{"said already", drivers.PQ, fmt.Errorf("%w: pq: unexpected DataRow", ErrBusy), true, nil},
	} {
		s := &server{}
		session := s.given(t, c.kind)
		if c.rows {
			session = s.withRows(t, c.kind)
		}
		err := session.likely(c.err)
		switch {
		case c.is == nil && err != c.err:
			t.Errorf("%s: %v", c.name, err)
		case c.is != nil && !errors.Is(err, c.is):
			t.Errorf("%s: %v is not %v", c.name, err, c.is)
		case c.is == ErrBusy && errors.Is(err, ErrOpenRows):
			t.Errorf("%s: the connection can still be used: %v", c.name, err)
		}
		if own := (Session{Ctx: t.Context(), On: session.On}); own.likely(c.err) != c.err {
			t.Errorf("%s: on a connection of one's own: %v", c.name, own.likely(c.err))
		}
	}
}

// Where a field of database/sql is gone, nobody knows whether rows are open.
func TestLookComesFirstWhereItIsNotKnown(t *testing.T) {
	s := &server{answers: []answer{ours(1)}}
	session := s.given(t, drivers.PQ)
	defer sqlprivate.Forget()()
	if n, err := session.Exec(try); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	s.got(t, 1, try)
}

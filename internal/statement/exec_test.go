package statement

import (
	"errors"
	"testing"

	"github.com/pgadvisory/pgadvisory/internal/bound"
	"github.com/pgadvisory/pgadvisory/internal/drivers"
)

const try = "SELECT 1 WHERE pg_catalog.pg_try_advisory_lock(4820)"

var kinds = map[string]drivers.Kind{"other": drivers.Other, "pgx": drivers.PGX, "lib/pq": drivers.PQ, "unknown": drivers.Unknown}

func TestExecReturnsTheRowCountInOneStatement(t *testing.T) {
	for name, kind := range kinds {
		for _, want := range []int{0, 1, 3} {
			s := &server{answers: []answer{ours(want)}}
			if n, err := s.given(t, kind).Exec(try); n != int64(want) || err != nil {
				t.Errorf("%s: %d, %v; want %d", name, n, err, want)
			}
			s.got(t, 0, try)
		}
	}
	s := &server{answers: []answer{ours(1)}}
	if n, err := (Session{Ctx: t.Context(), On: s.pin(t)}).Exec(try); n != 1 || err != nil {
		t.Errorf("on a connection of one's own: %d, %v", n, err)
	}
	s.got(t, 0, try)
}

// With several statements in one text the answer is the last one's.
func TestExecCountsTheLastResult(t *testing.T) {
	s := &server{answers: []answer{{results: []result{{column: "set_config", rows: 1}, {column: Answer, rows: 2}}}}}
	if n, err := s.given(t, drivers.PQ).Exec(try); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	s = &server{answers: []answer{{results: []result{{column: Answer, rows: 1}, {column: "id", rows: 2}}}}}
	if n, err := s.given(t, drivers.PQ).Exec(try); n != 0 || err != ErrOpenRows {
		t.Errorf("the last result is somebody else's: %d, %v", n, err)
	}
}

func TestExecReturnsTheErrorOfTheServer(t *testing.T) {
	errServer := errors.New("out of shared memory")
	for name, kind := range kinds {
		s := &server{answers: []answer{{err: errServer}}}
		if n, err := s.given(t, kind).Exec(try); n != 0 || err != errServer {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
	s := &server{answers: []answer{{results: []result{{column: Answer, rows: 1, err: errServer}}}}}
	if n, err := s.given(t, drivers.PQ).Exec(try); n != 0 || err != errServer {
		t.Errorf("after a row: %d, %v", n, err)
	}
}

// A driver may report success on a dead connection.
func TestAnswerAfterTheEndOfCtxIsNone(t *testing.T) {
	for name, kind := range kinds {
		s := &server{answers: []answer{ours(1)}}
		session, end := quiet(t, s.given(t, kind))
		s.answers[0].during = end
		if n, err := session.Exec(try); n != 0 || err != bound.ErrNoAnswer {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
	s := &server{answers: []answer{{}}}
	session, end := quiet(t, s.given(t, drivers.PGX))
	s.answers[0].during = end
	if err := session.Run("SET x = 1"); err != bound.ErrNoAnswer {
		t.Errorf("Run: %v", err)
	}
}

func TestRunSendsOneStatementWithoutALook(t *testing.T) {
	errServer := errors.New("the server's")
	s := &server{answers: []answer{{}, {err: errServer}}}
	session := s.withRows(t, drivers.PGX)
	if err := session.Run("SET x = 1"); err != nil {
		t.Error(err)
	}
	if err := session.Run("SET x = 2"); err != errServer {
		t.Error(err)
	}
	s.got(t, 0, "SET x = 1", "SET x = 2")
}

func TestOnlyLibPQIsQuickerWithLiterals(t *testing.T) {
	s := &server{}
	for name, kind := range kinds {
		if got := s.given(t, kind).Literal(); got != (kind == drivers.PQ) {
			t.Errorf("%s: %v", name, got)
		}
	}
	if (Session{Ctx: t.Context(), On: s.pin(t)}).Literal() {
		t.Error("on a connection of one's own, whose driver nobody knows")
	}
}

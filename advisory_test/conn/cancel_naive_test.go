package conn_test

import (
	"context"
	"database/sql"
	"slices"

	"github.com/pgadvisory/pgadvisory/advisory_test/harness"
)

// A naiveForm is what one would write without the library.
type naiveForm struct {
	form
	often []string // the names of the drivers of database/sql with which it often leaves a lock
}

func (f naiveForm) leaksOften(d harness.Driver) bool { return slices.Contains(f.often, d.Sql) }

const (
	byHandTry  = "SELECT pg_try_advisory_lock($1)"
	byHandLock = "SELECT pg_advisory_lock($1)"
)

var naiveForms = []naiveForm{
	{form: byHand("by hand, Conn.QueryRow, try", false, func(ctx context.Context, conn *sql.Conn, key int64) (ok bool, err error) {
		err = conn.QueryRowContext(ctx, byHandTry, key).Scan(&ok)
		return ok, err
	})},
	{form: byHand("by hand, Conn.QueryRow, waiting", true, func(ctx context.Context, conn *sql.Conn, key int64) (bool, error) {
		err := conn.QueryRowContext(ctx, byHandLock, key).Scan(new(any))
		return err == nil, err
	})},
	{form: byHand("by hand, Conn.Exec, waiting", true, func(ctx context.Context, conn *sql.Conn, key int64) (bool, error) {
		_, err := conn.ExecContext(ctx, byHandLock, key)
		return err == nil, err
	})},
	{form: prepared("by hand, Stmt.QueryRow, try", byHandTry, false, func(ctx context.Context, stmt *sql.Stmt, key int64) (ok bool, err error) {
		err = stmt.QueryRowContext(ctx, key).Scan(&ok)
		return ok, err
	})},
	{often: []string{"postgres"}, form: prepared("by hand, Stmt.QueryRow, waiting", byHandLock, true, func(ctx context.Context, stmt *sql.Stmt, key int64) (bool, error) {
		err := stmt.QueryRowContext(ctx, key).Scan(new(any))
		return err == nil, err
	})},
	{often: []string{"postgres"}, form: prepared("by hand, Stmt.Exec, waiting", byHandLock, true, func(ctx context.Context, stmt *sql.Stmt, key int64) (bool, error) {
		_, err := stmt.ExecContext(ctx, key)
		return err == nil, err
	})},
	{often: []string{"pgx"}, form: byHand("by hand, Conn.Query, rows not read yet", false, func(ctx context.Context, conn *sql.Conn, key int64) (ok bool, err error) {
		rows, err := conn.QueryContext(ctx, byHandTry, key)
		if err != nil {
			return false, err
		}
		defer rows.Close()
		if ctx.Done() != nil {
			<-ctx.Done()
		}
		for rows.Next() {
			if err := rows.Scan(&ok); err != nil {
				return false, err
			}
		}
		return ok, rows.Err()
	})},
}

func prepared(name, query string, waits bool, lock func(ctx context.Context, stmt *sql.Stmt, key int64) (bool, error)) form {
	return byHand(name, waits, func(ctx context.Context, conn *sql.Conn, key int64) (bool, error) {
		stmt, err := conn.PrepareContext(context.Background(), query)
		if err != nil {
			return false, err
		}
		defer stmt.Close()
		return lock(ctx, stmt, key)
	})
}

// byHand is a form that unlocks what it was told it got, and closes its connection.
func byHand(name string, waits bool, lock func(ctx context.Context, conn *sql.Conn, key int64) (bool, error)) form {
	return form{name: name, waits: waits, naive: true, run: func(p *harness.Pool, a *attempt) error {
		conn, err := p.Conn(context.Background())
		if err != nil {
			return err
		}
		defer conn.Close()
		key, _ := a.key().Int64()
		ok, err := lock(a.ctx, conn, key)
		if ok && err == nil {
			a.granted(conn)
			_, err = conn.ExecContext(context.Background(), "SELECT pg_advisory_unlock($1)", key)
		}
		return err
	}}
}

package sqlprivate

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"reflect"
	"runtime"
	"testing"
)

// A release of Go in which a field is gone needs another way to what the field says. Until there is
// one, answers stay right, and calls cost up to three round trips: see docs/guarantees.md.
func TestFieldsAreThere(t *testing.T) {
	p := reflect.ValueOf(*known.Load())
	for i := range p.NumField() {
		if place(p.Field(i).Int()) == nowhere {
			t.Errorf("%s has no field, of the type that is expected, for %s", runtime.Version(), p.Type().Field(i).Name)
		}
	}
}

// A server's connections begin transactions and return one row.
type server struct{}

func (s server) Connect(context.Context) (driver.Conn, error) { return s, nil }
func (s server) Driver() driver.Driver                        { return nil }
func (s server) Prepare(string) (driver.Stmt, error)          { return nil, errors.ErrUnsupported }
func (s server) Close() error                                 { return nil }
func (s server) Begin() (driver.Tx, error)                    { return s, nil }
func (s server) Commit() error                                { return nil }
func (s server) Rollback() error                              { return nil }
func (s server) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return &row{}, nil
}

type row struct{ read bool }

func (r *row) Columns() []string { return []string{"n"} }
func (r *row) Close() error      { return nil }
func (r *row) Next(dest []driver.Value) error {
	if r.read {
		return io.EOF
	}
	r.read, dest[0] = true, int64(1)
	return nil
}

type wrapped struct{ *sql.Conn }

func TestPoolAndIdle(t *testing.T) {
	db := sql.OpenDB(server{})
	defer db.Close()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	for _, v := range []any{conn, wrapped{conn}, &wrapped{conn}, tx} {
		if Pool(v) != db || !Idle(v) {
			t.Errorf("%T: pool %p, want %p; idle: %v", v, Pool(v), db, Idle(v))
		}
	}
	for _, on := range []interface {
		QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	}{conn, tx} {
		rows, err := on.QueryContext(t.Context(), "SELECT 1")
		if err != nil {
			t.Fatal(err)
		}
		if Idle(on) {
			t.Errorf("%T: idle with rows open", on)
		}
		rows.Close()
		if !Idle(on) {
			t.Errorf("%T: not idle with the rows closed", on)
		}
	}
	onConn, err := conn.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if Idle(conn) {
		t.Error("idle with a transaction open")
	}
	onConn.Rollback()

	restore := Forget()
	if Pool(conn) != nil || Pool(tx) != nil || Idle(conn) || Idle(tx) {
		t.Error("a field that is gone is read")
	}
	restore()

	conn.Close()
	if Pool(conn) != nil {
		t.Error("a closed connection has a pool")
	}
}

func TestNothingIsKnownOfOthers(t *testing.T) {
	for _, v := range []any{nil, 1, (*sql.Conn)(nil), (*sql.Tx)(nil), wrapped{}, (*wrapped)(nil), &sql.DB{}} {
		if Pool(v) != nil || Idle(v) {
			t.Errorf("%T: pool %v, idle %v", v, Pool(v), Idle(v))
		}
	}
}

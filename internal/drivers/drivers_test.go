package drivers

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/pgadvisory/pgadvisory/internal/sqlprivate"
)

// The suites of advisory_test have the drivers themselves; this test has what is none of them.

type other struct{ driver.Driver }

type server struct{ driver func() driver.Driver }

func (s server) Connect(context.Context) (driver.Conn, error) { return conn{}, nil }
func (s server) Driver() driver.Driver                        { return s.driver() }

type conn struct{}

func (conn) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }
func (conn) Close() error                        { return nil }
func (conn) Begin() (driver.Tx, error)           { return conn{}, nil }
func (conn) Commit() error                       { return nil }
func (conn) Rollback() error                     { return nil }

func TestOthers(t *testing.T) {
	for _, v := range []any{nil, 1, conn{}, &conn{}, (*conn)(nil), other{}, other{other{}}} {
		if k := Of(v); k != Other {
			t.Errorf("%T: %v", v, k)
		}
	}
	itself := &other{}
	itself.Driver = itself
	for name, d := range map[string]func() driver.Driver{
		"none":        func() driver.Driver { return nil },
		"nil":         func() driver.Driver { return (*other)(nil) },
		"other":       func() driver.Driver { return other{} },
		"in a circle": func() driver.Driver { return itself },
		"panics":      func() driver.Driver { panic("nobody calls this") },
	} {
		db := sql.OpenDB(server{d})
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		if sqlprivate.Pool(tx) != db {
			t.Errorf("%s: the driver was not asked", name)
		}
		if k := OfTx(tx); k != Other {
			t.Errorf("%s: %v", name, k)
		}
		restore := sqlprivate.Forget()
		if k := OfTx(tx); k != Unknown {
			t.Errorf("%s: %v, though it is not known", name, k)
		}
		restore()
		tx.Rollback()
		db.Close()
	}
	if k := OfTx(nil); k != Other {
		t.Errorf("no transaction: %v", k)
	}
}

// Package sqlprivate reads what database/sql knows of a connection or a transaction and does not
// export: its pool, and whether rows are open on it.
//
// It reads private fields by reflection, and is the only package that does. Where a release of Go
// has renamed one, the answer is that it is not known, and callers ask the server instead.
package sqlprivate

import (
	"database/sql"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/pgadvisory/pgadvisory/internal/given"
)

// Pool returns the pool of a connection or a transaction. It returns nil where that is not known,
// as for a connection that has been closed.
func Pool(v any) *sql.DB {
	p := known.Load()
	r, place := of(v, p.connDB, p.txDB)
	if db := place.in(r); db.IsValid() {
		return (*sql.DB)(db.UnsafePointer())
	}
	return nil
}

// Idle reports that no rows are open on a connection or a transaction and that no statement runs on
// it. It returns false where that is not known.
//
// database/sql holds a mutex for read as long as rows are open, and on a connection as long as a
// transaction is. Idle does not lock it: the rows are a caller's, who may close them.
func Idle(v any) bool {
	p := known.Load()
	r, place := of(v, p.connMutex, p.txMutex)
	readers := p.readers.in(place.in(r))
	return readers.IsValid() && (*atomic.Int32)(readers.Addr().UnsafePointer()).Load() == 0
}

// of returns the struct of a *sql.Conn or *sql.Tx, or of what embeds one, and which of the two
// places is for it.
func of(v any, conn, tx place) (reflect.Value, place) {
	switch v := given.Inner(v).(type) {
	case *sql.Conn:
		if v != nil {
			return reflect.ValueOf(v).Elem(), conn
		}
	case *sql.Tx:
		if v != nil {
			return reflect.ValueOf(v).Elem(), tx
		}
	}
	return reflect.Value{}, nowhere
}

// A place is the index of a field, or nowhere.
type place int

const nowhere place = -1

// in returns the field of a struct, or the zero Value.
func (p place) in(r reflect.Value) reflect.Value {
	if p == nowhere || !r.IsValid() {
		return reflect.Value{}
	}
	return r.Field(int(p))
}

// find returns the place of the field of struct S that has this name and type F.
func find[S, F any](name string) place {
	f, ok := reflect.TypeFor[S]().FieldByName(name)
	if !ok || len(f.Index) != 1 || f.Type != reflect.TypeFor[F]() {
		return nowhere
	}
	return place(f.Index[0])
}

// places are where database/sql and sync keep what this package reads.
type places struct{ connDB, txDB, connMutex, txMutex, readers place }

var known atomic.Pointer[places]

func init() {
	known.Store(&places{
		connDB:    find[sql.Conn, *sql.DB]("db"),
		txDB:      find[sql.Tx, *sql.DB]("db"),
		connMutex: find[sql.Conn, sync.RWMutex]("closemu"),
		txMutex:   find[sql.Tx, sync.RWMutex]("closemu"),
		readers:   find[sync.RWMutex, atomic.Int32]("readerCount"),
	})
}

// Forget makes the package find no field, as with a release of Go that has renamed them all, until
// restore is called. It is for tests.
func Forget() (restore func()) {
	before := known.Swap(&places{nowhere, nowhere, nowhere, nowhere, nowhere})
	return func() { known.Store(before) }
}

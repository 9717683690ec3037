package given

import (
	"database/sql"
	"reflect"
)

// PoolOf returns the pool of a connection, to be remembered and asked for numbers; nil where that
// is not known, as for a connection that has been closed.
//
// database/sql does not say which pool that is. So it is read from where database/sql keeps it,
// which never changes.
func PoolOf(conn any) *sql.DB {
	r := reflect.ValueOf(Inner(conn))
	if r.Kind() != reflect.Pointer || r.Type() != connType || r.IsNil() {
		return nil
	}
	db := field(r.Elem(), connDB)
	if !db.IsValid() || db.Type() != dbType {
		return nil
	}
	return (*sql.DB)(db.UnsafePointer())
}

// IdleBeside returns how many connections are idle in the pool that a connection is from; 0
// where that is not known.
func IdleBeside(conn any) int {
	if db := PoolOf(conn); db != nil {
		return db.Stats().Idle
	}
	return 0
}

var connDB = fieldOf(connType.Elem(), "db")

package given

import (
	"database/sql"
	"reflect"
)

// IdleBeside returns how many connections are idle in the pool that a connection is from; 0
// where that is not known, as for one that has been closed.
//
// database/sql does not say which pool that is. So it is read from where database/sql keeps it,
// which never changes.
func IdleBeside(conn any) int {
	r := reflect.ValueOf(Inner(conn))
	if r.Kind() != reflect.Pointer || r.Type() != connType || r.IsNil() {
		return 0
	}
	db := field(r.Elem(), connDB)
	if !db.IsValid() || db.Type() != dbType || db.IsNil() {
		return 0
	}
	return (*sql.DB)(db.UnsafePointer()).Stats().Idle
}

var connDB = fieldOf(connType.Elem(), "db")

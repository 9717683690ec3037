package given

import (
	"database/sql"
	"reflect"
)

var connDB = fieldOf(connType.Elem(), "db")

// PoolOf returns the pool of a connection, to be remembered and not to be used; nil where
// database/sql does not keep it where it is looked for.
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

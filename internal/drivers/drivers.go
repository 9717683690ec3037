// Package drivers tells the drivers apart whose behaviour differs.
package drivers

import (
	"database/sql"
	"database/sql/driver"
	"reflect"
	"strings"

	"github.com/pgadvisory/pgadvisory/internal/given"
	"github.com/pgadvisory/pgadvisory/internal/sqlprivate"
)

// A Kind is a driver whose behaviour is known, or any other.
type Kind byte

const (
	Other   Kind = iota
	PGX          // refuses a statement while rows are open
	PQ           // takes what it reads first for a statement's answer
	Unknown      // perhaps one of these: database/sql does not show it any more
)

// depth is how many wrappers are looked through.
const depth = 4

// Of returns the driver of a driver's connection.
func Of(driverConn any) Kind { return below(reflect.ValueOf(driverConn), depth) }

// OfTx returns the driver of a transaction, which is Other if tx is no *sql.Tx and embeds none.
func OfTx(tx any) (k Kind) {
	if _, ok := given.Inner(tx).(*sql.Tx); !ok {
		return Other
	}
	db := sqlprivate.Pool(tx)
	if db == nil {
		return Unknown
	}
	defer func() {
		if recover() != nil { // in a connector's Driver, which database/sql itself never calls
			k = Other
		}
	}()
	return below(reflect.ValueOf(db.Driver()), depth)
}

var driverType = reflect.TypeFor[driver.Driver]()

// below returns the driver whose package v's type is of, or that of the driver that v embeds, as
// wrappers do.
func below(v reflect.Value, depth int) Kind {
	for v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if !v.IsValid() || depth == 0 {
		return Other
	}
	t := v.Type()
	switch pkg := t.PkgPath() + "/"; {
	case strings.HasPrefix(pkg, "github.com/jackc/pgx/"):
		return PGX
	case strings.HasPrefix(pkg, "github.com/lib/pq/"):
		return PQ
	}
	if v.Kind() != reflect.Struct {
		return Other
	}
	for i := range t.NumField() {
		if f := t.Field(i); f.Anonymous && f.Type == driverType {
			return below(v.Field(i), depth-1)
		}
	}
	return Other
}

package given

import (
	"database/sql"
	"database/sql/driver"
	"reflect"
	"strings"
)

// A Driver is one whose ways are known.
type Driver byte

const (
	Other Driver = iota
	PGX          // refuses a statement while rows are open
	PQ           // takes what it reads first for a statement's answer
)

// DriverOf returns whose connection driverConn is.
func DriverOf(driverConn any) Driver { return driverBelow(reflect.ValueOf(driverConn), 4) }

// DriverOfTx returns which driver is below a transaction.
//
// database/sql does not say it. So it is read from where database/sql keeps it, which never
// changes; where that is not found, the driver is any other.
func DriverOfTx(tx any) Driver {
	r := reflect.ValueOf(Inner(tx))
	if r.Kind() != reflect.Pointer || r.Type() != txType || r.IsNil() {
		return Other
	}
	db := field(r.Elem(), txDB)
	if !db.IsValid() || db.Type() != dbType || db.IsNil() {
		return Other
	}
	return driverBelow(field(db.Elem(), dbConnector), 4)
}

var (
	dbType        = reflect.TypeFor[*sql.DB]()
	connectorType = reflect.TypeFor[driver.Connector]()
	driverType    = reflect.TypeFor[driver.Driver]()

	txDB        = fieldOf(txType.Elem(), "db")
	dbConnector = fieldOf(dbType.Elem(), "connector")
)

// fieldOf is the place of a field, or -1.
func fieldOf(t reflect.Type, name string) int {
	f, ok := t.FieldByName(name)
	if !ok || len(f.Index) != 1 {
		return -1
	}
	return f.Index[0]
}

func field(v reflect.Value, i int) reflect.Value {
	if i < 0 {
		return reflect.Value{}
	}
	return v.Field(i)
}

// driverBelow looks at a connector or driver, and at what it embeds: so wrappers are made.
// The connector that database/sql makes of a driver has it as a field.
func driverBelow(v reflect.Value, depth int) Driver {
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
		f := t.Field(i)
		if (f.Type == connectorType || f.Type == driverType) && (f.Anonymous || t.PkgPath() == "database/sql") {
			return driverBelow(v.Field(i), depth-1)
		}
	}
	return Other
}

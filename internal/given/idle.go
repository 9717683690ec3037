package given

import (
	"database/sql"
	"reflect"
	"sync"
)

// Idle reports that no rows are open on a connection or transaction and that no statement
// is under way. Where that is not known it is false.
//
// database/sql holds a mutex for read as long as rows are open, and a transaction on a
// connection. It is only looked at: the rows are a caller's, who may close them.
func Idle(v any) bool {
	r := reflect.ValueOf(Inner(v))
	if r.Kind() != reflect.Pointer || r.IsNil() {
		return false
	}
	var m reflect.Value
	switch r.Type() {
	case connType:
		m = field(r.Elem(), connMutex)
	case txType:
		m = field(r.Elem(), txMutex)
	}
	if !m.IsValid() || m.Type() != mutexType || mutexReaders < 0 {
		return false
	}
	return m.Field(mutexReaders).IsZero()
}

var (
	mutexType    = reflect.TypeFor[sync.RWMutex]()
	mutexReaders = fieldOf(mutexType, "readerCount")
	connMutex    = fieldOf(reflect.TypeFor[sql.Conn](), "closemu")
	txMutex      = fieldOf(reflect.TypeFor[sql.Tx](), "closemu")
)

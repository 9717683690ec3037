// Package given looks at values that callers give as interfaces.
package given

import (
	"database/sql"
	"errors"
	"reflect"
)

// ErrNilCtx is returned for a ctx that is nil, before anything is done.
var ErrNilCtx = errors.New("ctx is nil")

var (
	connType = reflect.TypeFor[*sql.Conn]()
	txType   = reflect.TypeFor[*sql.Tx]()
)

// IsNil reports whether v is nil, a nil pointer or func in an interface, or a
// wrapper, such as sqlx's, around a nil *sql.Conn or *sql.Tx.
func IsNil(v any) bool {
	r := reflect.ValueOf(Inner(v))
	switch r.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Func, reflect.Map, reflect.Slice, reflect.Chan:
		return r.IsNil()
	}
	return false
}

// Inner returns the *sql.Conn or *sql.Tx that v embeds, as those of sqlx and bun do, or
// that what it embeds does; else v.
func Inner(v any) any {
	if inner, ok := innerOf(reflect.ValueOf(v), 4); ok {
		return inner
	}
	return v
}

func innerOf(r reflect.Value, depth int) (inner any, ok bool) {
	if r.Kind() == reflect.Pointer {
		if t := r.Type(); t == connType || t == txType {
			if !r.CanInterface() {
				return nil, false
			}
			return r.Interface(), true
		}
		r = r.Elem()
	} else if r.Kind() == reflect.Interface {
		return innerOf(r.Elem(), depth)
	}
	if r.Kind() != reflect.Struct || depth == 0 {
		return nil, false
	}
	for i := range r.NumField() {
		if r.Type().Field(i).Anonymous {
			if inner, ok = innerOf(r.Field(i), depth-1); ok {
				return inner, true
			}
		}
	}
	return nil, false
}

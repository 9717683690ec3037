// Package given looks at values that callers give as interfaces.
package given

import (
	"database/sql"
	"reflect"
)

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

// Inner returns the *sql.Conn or *sql.Tx that v embeds, as those of sqlx and bun
// do; else v.
func Inner(v any) any {
	r := reflect.ValueOf(v)
	if r.Kind() == reflect.Pointer {
		if t := r.Type(); t == connType || t == txType {
			return v
		}
		r = r.Elem()
	}
	if r.Kind() != reflect.Struct {
		return v
	}
	for i := range r.NumField() {
		f := r.Type().Field(i)
		if f.Anonymous && (f.Type == connType || f.Type == txType) {
			return r.Field(i).Interface()
		}
	}
	return v
}

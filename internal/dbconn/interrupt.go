package dbconn

import (
	"reflect"
	"sync"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/drivers"
)

// Interruptible reports whether [Driver.GiveUp] ends a statement that is under way.
func (d *Driver) Interruptible() bool {
	c, ok := d.conn.Load().(driverConn)
	if !ok {
		return false
	}
	switch drivers.Of(c.Conn) {
	case drivers.PQ:
		return true
	case drivers.Other:
		return false
	}
	t := reflect.TypeOf(c.Conn)
	if known, ok := interruptible.Load(t); ok {
		return known.(bool)
	}
	_, found := deadlineOf(c.Conn)
	interruptible.Store(t, found)
	return found
}

// interruptible remembers, by the type of a driver's connection, whether deadlineOf finds one.
var interruptible sync.Map

type deadliner interface{ SetDeadline(time.Time) error }

// deadlineOf returns the network connection of pgx: Conn().PgConn().Conn().
//
// The names are constants, so that the linker may still leave out other methods.
func deadlineOf(conn any) (d deadliner, ok bool) {
	v := reflect.ValueOf(conn)
	if v, ok = result(v.MethodByName("Conn")); ok {
		if v, ok = result(v.MethodByName("PgConn")); ok {
			v, ok = result(v.MethodByName("Conn"))
		}
	}
	if !ok || !v.CanInterface() {
		return nil, false
	}
	d, ok = v.Interface().(deadliner)
	return d, ok
}

// result calls a method without parameters that has one result, not nil.
func result(method reflect.Value) (v reflect.Value, ok bool) {
	if !method.IsValid() || method.Type().NumIn() != 0 || method.Type().NumOut() != 1 {
		return v, false
	}
	v = method.Call(nil)[0]
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return v, !v.IsNil()
	}
	return v, true
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)

package bound

import (
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/given"
)

// A driver, and database/sql for rows, watch a context that can end on goroutines of their own, for
// each statement, which costs a quarter of the statement and more. All that pgx does at the end of
// the context is to set a deadline on the network connection, and lib/pq may not return at all. So
// a [Quiet] context and [Driver.GiveUp] do as much without those goroutines. Only, lib/pq sends no
// request to cancel the statement: what waits on the server goes on there until it is over.

// Quiet returns a context with the values of ctx and its error, of whose end a driver hears
// nothing. It is for a connection that is [Driver.Interruptible].
func Quiet(ctx context.Context) context.Context {
	if ctx.Done() == nil {
		return ctx
	}
	return quiet{ctx}
}

type quiet struct{ context.Context }

func (quiet) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }
func (quiet) Done() <-chan struct{}                   { return nil }

// Interruptible reports whether [Driver.GiveUp] ends a statement that is under way.
func (d *Driver) Interruptible() bool {
	c, ok := d.conn.Load().(driverConn)
	if !ok {
		return false
	}
	switch given.DriverOf(c.Conn) {
	case given.PQ:
		return true
	case given.Other:
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

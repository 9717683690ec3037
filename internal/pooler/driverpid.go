package pooler

import (
	"database/sql/driver"
	"reflect"
)

// ToldPID returns the pid that the driver got when it connected, if the driver shows it. Most
// proxies invent one. If it differs from the session's pid, there is a proxy, in any mode.
func (l *Link) ToldPID() (pid int64, ok bool) {
	l.Conn.Raw(func(driverConn any) error {
		pid, _, ok = driverPID(reflect.ValueOf(driverConn), depth)
		return nil
	})
	return pid, ok
}

// depth is how many wrappers of a connection are searched.
const depth = 4

// driverPID returns the pid, and the address of an object that a driver keeps for as long as the
// physical connection lasts.
func driverPID(conn reflect.Value, depth int) (pid int64, physical *byte, ok bool) {
	if conn.Kind() != reflect.Pointer || conn.IsNil() || depth == 0 {
		return 0, nil, false
	}
	// lib/pq has it in a field, which has had two names.
	s := conn.Elem()
	if s.Kind() == reflect.Struct && s.Type().PkgPath() == "github.com/lib/pq" {
		for _, name := range []string{"processID", "pid"} {
			if f := s.FieldByName(name); f.IsValid() && f.CanInt() {
				return f.Int(), (*byte)(conn.UnsafePointer()), true
			}
		}
	}
	// In pgx it is Conn().PgConn().PID(). The names are constants, so that the linker may
	// still omit other methods.
	below, ok := result(conn.MethodByName("Conn"))
	if ok {
		below, ok = result(below.MethodByName("PgConn"))
	}
	if ok && below.Kind() == reflect.Pointer {
		if pid, ok := result(below.MethodByName("PID")); ok && pid.CanUint() {
			return int64(pid.Uint()), (*byte)(below.UnsafePointer()), true
		}
	}
	return wrappedPID(s, depth-1)
}

var connType = reflect.TypeFor[driver.Conn]()

// wrappedPID searches the connection that a wrapper has as a field.
func wrappedPID(wrapper reflect.Value, depth int) (pid int64, physical *byte, ok bool) {
	if wrapper.Kind() != reflect.Struct {
		return 0, nil, false
	}
	for i := range wrapper.NumField() {
		f := wrapper.Field(i)
		if !f.Type().Implements(connType) {
			continue
		}
		if f.Kind() == reflect.Interface {
			f = f.Elem()
		}
		if f.Kind() != reflect.Pointer || f.IsNil() {
			continue
		}
		// Build a new value, since methods of the value of an unexported field cannot be called.
		if pid, physical, ok = driverPID(reflect.NewAt(f.Type().Elem(), f.UnsafePointer()), depth); ok {
			return pid, physical, true
		}
	}
	return 0, nil, false
}

// result calls a method without parameters that has one result. ok is false if there is none, or it
// is nil.
func result(method reflect.Value) (v reflect.Value, ok bool) {
	if !method.IsValid() || method.Type().NumIn() != 0 || method.Type().NumOut() != 1 {
		return v, false
	}
	v = method.Call(nil)[0]
	return v, v.Kind() != reflect.Pointer || !v.IsNil()
}

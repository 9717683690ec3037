package pooler

import "reflect"

// ToldPID returns the pid that the connection was told when it was made, if the driver lets
// that be seen. A proxy makes one up: if it is another than the session's pid, there is a
// proxy, in whatever mode.
func (l *Link) ToldPID() (pid int64, ok bool) {
	l.Conn.Raw(func(driverConn any) error {
		pid, ok = told(reflect.ValueOf(driverConn))
		return nil
	})
	return pid, ok
}

func told(conn reflect.Value) (pid int64, ok bool) {
	if conn.Kind() != reflect.Pointer || conn.IsNil() {
		return 0, false
	}
	// lib/pq keeps it in a field, which has had two names.
	if s := conn.Elem(); s.Kind() == reflect.Struct && s.Type().PkgPath() == "github.com/lib/pq" {
		for _, name := range []string{"processID", "pid"} {
			if f := s.FieldByName(name); f.IsValid() && f.CanInt() {
				return f.Int(), true
			}
		}
	}
	// In pgx it is Conn().PgConn().PID(). The names are constants, so that the linker may
	// still leave out other methods.
	conn, ok = result(conn.MethodByName("Conn"))
	if ok {
		conn, ok = result(conn.MethodByName("PgConn"))
	}
	if ok {
		conn, ok = result(conn.MethodByName("PID"))
	}
	if !ok || !conn.CanUint() {
		return 0, false
	}
	return int64(conn.Uint()), true
}

// result calls a method without parameters that has one result, not nil.
func result(method reflect.Value) (v reflect.Value, ok bool) {
	if !method.IsValid() || method.Type().NumIn() != 0 || method.Type().NumOut() != 1 {
		return v, false
	}
	v = method.Call(nil)[0]
	return v, v.Kind() != reflect.Pointer || !v.IsNil()
}

package pooler

import (
	"database/sql"
	"reflect"
	"runtime"
	"sync"
	"weak"

	"github.com/pgadvisory/pgadvisory/internal/drivers"
)

// A Route is how a connection leads to its session.
type Route int

const (
	Direct   Route = iota // to PostgreSQL, as the pids show
	Indirect              // through a proxy, to another server, or the driver does not show it
)

// fitPools has the pools whose check has succeeded, by weak.Pointer[sql.DB], for each route. A failed or
// missing check is not remembered.
var fitPools [2]sync.Map

// Remember remembers that the check of a pool has succeeded on such a connection, for as long as the
// pool lives.
func Remember(db *sql.DB, r Route) { remember(&fitPools[r], db) }

// Known reports whether the check of a pool has succeeded, and says something about such a connection: a
// pool that led to the server directly may lead through a proxy later.
func Known(db *sql.DB, r Route) bool {
	return known(&fitPools[Indirect], db) || r == Direct && known(&fitPools[Direct], db)
}

func remember(pools *sync.Map, db *sql.DB) {
	if db == nil {
		return
	}
	p := weak.Make(db)
	if _, known := pools.LoadOrStore(p, true); !known {
		runtime.AddCleanup(db, func(p weak.Pointer[sql.DB]) { pools.Delete(p) }, p)
	}
}

func known(pools *sync.Map, db *sql.DB) bool {
	if db == nil {
		return false
	}
	_, known := pools.Load(weak.Make(db))
	return known
}

// fitOthers is fitPools for checks on servers that are not PostgreSQL.
var fitOthers sync.Map

// RememberOther is [Remember] after a check on a server that is not PostgreSQL.
func RememberOther(db *sql.DB) { remember(&fitOthers, db) }

// Forget forgets that the check of a pool has succeeded: its locks turned out not to exclude.
func Forget(db *sql.DB) {
	if db != nil {
		for r := range fitPools {
			fitPools[r].Delete(weak.Make(db))
		}
		fitOthers.Delete(weak.Make(db))
	}
}

// KnownOther reports whether the check of a pool has succeeded on a server that is not PostgreSQL.
func KnownOther(db *sql.DB) bool { return known(&fitOthers, db) }

// directOnes has the physical connections that were seen to be direct, by weak.Pointer[byte].
var directOnes sync.Map

// A Physical is a physical connection, as far as its driver shows it.
type Physical struct {
	PID  int64 // the pid that the driver got when it connected; a proxy invents one
	Told bool  // whether the driver shows the pid
	at   *byte
}

// physicals holds what [PhysicalOf] found, by weak.Pointer[byte] of the driver's connection: to
// find it takes longer than all the rest of a call does in this process.
var physicals sync.Map

// PhysicalOf returns the connection below a driver's, which may be a wrapper.
func PhysicalOf(driverConn any) Physical {
	conn := reflect.ValueOf(driverConn)
	if conn.Kind() != reflect.Pointer || drivers.Of(driverConn) == drivers.Other {
		return physicalOf(conn) // a wrapper may change what is below it
	}
	at := (*byte)(conn.UnsafePointer())
	w := weak.Make(at)
	if p, ok := physicals.Load(w); ok {
		return p.(found).physical()
	}
	p := physicalOf(conn)
	if _, known := physicals.LoadOrStore(w, found{p.PID, p.Told, weak.Make(p.at)}); !known {
		runtime.AddCleanup(at, func(w weak.Pointer[byte]) { physicals.Delete(w) }, w)
	}
	return p
}

// found is a [Physical] that does not keep the connection alive.
type found struct {
	pid  int64
	told bool
	at   weak.Pointer[byte]
}

func (f found) physical() Physical { return Physical{f.pid, f.told, f.at.Value()} }

func physicalOf(conn reflect.Value) Physical {
	pid, at, ok := driverPID(conn, depth)
	return Physical{pid, ok, at}
}

// Direct reports whether the connection was seen to be direct.
func (p Physical) Direct() bool {
	if p.at == nil {
		return false
	}
	_, ok := directOnes.Load(weak.Make(p.at))
	return ok
}

// SetDirect remembers that the connection is direct, without keeping it alive.
func (p Physical) SetDirect() {
	if p.at == nil {
		return
	}
	w := weak.Make(p.at)
	if _, known := directOnes.LoadOrStore(w, true); !known {
		runtime.AddCleanup(p.at, func(w weak.Pointer[byte]) { directOnes.Delete(w) }, w)
	}
}
